// Package k8s has the one name that Consul needs.
package k8s

// Provider is none.
type Provider struct{}
