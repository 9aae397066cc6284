// Package memory is a store in the process itself: the reference driver, and
// the one for tests and for programs that have only one process.
//
//	l := locker.New(memory.New())                  // a space of its own
//	l, err := locker.Open(ctx, "memory://jobs")    // shared by all who open this name
//	l, err := locker.Open(ctx, "memory://")        // shared by all who name none
//
// It keeps every rule that the drivers over a network keep. What it holds is
// gone with the process, fencing tokens with it.
//
// Leases run on the process's monotonic clock. A lease that nobody releases
// ends exactly at its TTL, and a waiter is woken through a channel; there is
// neither polling nor a goroutine. The driver works
// inside a bubble of testing/synctest, so that a program's own expiry and loss
// can be tested in no time; a space must not be shared by two bubbles.
package memory
