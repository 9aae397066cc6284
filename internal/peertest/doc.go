// Package peertest proves that locks of driver/redis and those of other
// clients that set a key with NX and PX keep each other out. It is a module of
// its own, so that nobody who uses locker depends on these clients. It holds
// tests only.
package peertest
