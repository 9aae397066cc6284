// Package lockertest is a Locker for unit tests of programs that use one: a
// store in memory, with faults on demand, and a record of who held what when.
//
//	synctest.Test(t, func(t *testing.T) {
//		l := lockertest.New()
//		defer l.Close()
//		h := NewHandler(l) // the code under test takes a locker.Locker
//
//		l.Down() // every request is refused, as by a store that is down
//		…h answers 503…
//		l.Heal()
//		l.AssertFree(t) // nothing is left held
//	})
//
// A [Locker] stands for one process. [Locker.Join] makes another one on the same
// store, for the rival who has the lock, or for the standby that takes
// over. The faults of a Locker are those of its own way to the store: the others
// go on, as when one machine is cut off.
//
// # What it promises
//
// The faults lie below the core, in the driver: what the tested program sees is
// what the core makes of them, as in production. A waiter whose store is down
// waits on, and loses its place in the queue after [Liveness]; a holder is renewed,
// and loses its lock when the validity of its lease ends; a Release that the store
// does not answer returns after its bound, and the ticket is removed later.
//
// Inside a bubble of testing/synctest all of that takes no time, leases of an
// hour included. Outside it works too, in real time: Down, Lose and Answer act at
// once, while a Release or a Close on a store that is down or hung takes its bound
// (locker.WithReleaseTimeout, 5 s). Heal before Close, unless the end of a process
// without its store is what you test. Make and close a Locker inside the same
// bubble.
//
// # What it does not promise
//
// It shows nothing of what differs between stores: their shortest lease, their
// time from a crash to the next grant (driver.Bounds), the size of their tokens,
// their own errors. Test on the real store what depends on those.
package lockertest
