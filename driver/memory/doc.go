// Package memory is a store in the process itself: the reference driver, for tests
// and for programs that have only one process. Read package locker first; package
// lockertest has such a store with faults on demand.
//
//	l := locker.New(memory.New())                  // a new store
//	l, err := locker.Open(ctx, "memory://jobs")    // the store of that name, shared in the process
//	l, err := locker.Open(ctx, "memory://")        // the store without a name, shared in the process
//
// It keeps every rule that the drivers over a network keep. The locks and the fencing
// tokens end with the process.
//
// Leases run on the process's monotonic clock. A lease that is not renewed ends
// exactly at its TTL, and a waiter is notified through a channel: nothing polls, and
// there are no goroutines. The driver works in a bubble of testing/synctest, where
// tests of expiry and loss take no time. Two bubbles must not share a store.
package memory
