//go:build race

package etcd_test

// The race detector slows the client down, and not the server.
const racing = true
