// Package lockertest has a Locker for unit tests of programs that use one: a store in
// memory, with faults on demand and a record of all grants. Begin with [New].
//
//	synctest.Test(t, func(t *testing.T) {
//		l := lockertest.New()
//		defer l.Close()
//		h := NewHandler(l) // the code under test takes a locker.Locker
//
//		l.Down() // every request fails, as if the store were down
//		…h answers 503…
//		l.Heal()
//		l.AssertFree(t) // nothing is held any more
//	})
//
// A [Locker] stands for one process. [Locker.Join] makes another one on the same store,
// for example for a competitor that has the lock, or a standby that takes over. The faults
// of a Locker affect its own connection to the store, not the other Lockers.
//
// # What it promises
//
// The faults are in the driver, below the core, so the program sees what it would see in
// production. A waiter whose store is down goes on waiting, and its ticket expires after
// [Liveness]; if its wait ends before the store is back, that is ErrUnavailable too. A
// store that hangs is found to be away within two seconds. A holder loses its lock when the
// validity of its lease ends without a renewal. A Release that the store does not answer
// returns after its bound, and the ticket is removed later.
//
// In a bubble of testing/synctest waiting takes no time, even for leases of an hour. It
// also works outside, in real time: Down, Lose and Answer take effect at once, but a
// Release or Close while the store is down or hangs takes its bound
// (locker.WithReleaseTimeout, 5 s). Call Heal before Close, unless you test a process that
// ends without its store. Make and close a Locker in the same bubble.
//
// # What it does not promise
//
// It does not show how stores differ: their shortest lease, their time from a crash to the
// next grant (driver.Bounds), the size of their tokens, their own errors. Test what depends
// on those on the real store.
package lockertest
