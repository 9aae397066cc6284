// Package locker gives processes time-bounded ownership of named resources, on
// whichever store they already run: Redis, etcd, ZooKeeper, Consul, PostgreSQL,
// MySQL, NATS, Memcached, DynamoDB, SQLite, or memory. Read [Locker] next, and the package
// of your store (driver/redis, …), which says what loses a lock there. To change the
// package, begin with "Inside the package" below.
//
//	l, err := locker.Open(ctx, "redis://localhost:6379")
//	if err != nil {
//		return err
//	}
//	defer l.Close()
//
//	return locker.Do(ctx, l, "order:42", func(ctx context.Context) error {
//		return ship(ctx, 42) // ctx ends if the lock is lost
//	})
//
// # Tickets
//
// Each lock name has a queue. Whoever wants the lock takes a ticket, which the
// store numbers. An exclusive ticket is granted when no live ticket is ahead of
// it; a shared one when no exclusive ticket is ahead of it, and fewer shared ones
// than its limit. So the queue is first come, first served, nobody starves, and one
// rule makes a mutex, a readers/writer lock ([Shared]) and a semaphore ([Limit]).
//
// # Leases and fencing
//
// A granted ticket is held under a lease of TTL ([WithTTL]), which is renewed every
// TTL/3 as long as the process lives ([WithoutRenewal] turns that off). A process
// that dies loses its locks when their leases end. A process that is paused, or cut
// off from the store, loses them too, and cannot know that at once. Two things help:
//
//   - The holder counts the validity of a lease: the TTL less a safety margin
//     ([WithSafetyMargin]), from the moment before the last successful renewal was
//     sent. It uses its own monotonic clock, and counts the time that the machine was
//     suspended too. When the validity ends, [Lock.Done] is closed and the contexts of
//     [Lock.Context] end, whether or not the store has answered, and before the
//     store grants the lock to anybody else. There are four exceptions. A lock that is
//     taken away with [Client.Break] is free at once. So is one whose store has lost its
//     data; and one whose lease has ended early because the store's wall clock was set
//     forward (of Redis, PostgreSQL, MySQL, NATS: slew their clocks). The holder learns of
//     these when the store notifies it, or at the next renewal. And a process that was
//     paused, or whose machine was suspended, cannot act meanwhile: [Lock.Err] knows of the
//     loss when it goes on, Done and the contexts within a second.
//   - [Lock.Token] is a fencing token: it grows with every grant of the name. A
//     resource that refuses a token smaller than the largest it has seen is safe
//     from any late holder. See Kleppmann, "How to do distributed locking", 2016,
//     and Chubby's sequencers (Burrows, OSDI 2006).
//
// Without a fencing token a lock protects only as well as the clocks and the pauses
// of its holder allow, on any store.
//
// # Errors
//
// Test for errors with errors.Is, in this order:
//
//  1. [ErrUnavailable]: the store did not answer, so nobody knows who has the lock. A
//     waiter whose store went away after its ticket was queued gets it beside
//     ErrNotAcquired or the error of its context, so test for it first.
//  2. [ErrNotAcquired]: somebody else has the lock.
//  3. [ErrLost], of [Do], [Lock.Release] and [Lock.Extend]: the lock was held, and lost. Of
//     acquisitions only [AcquireAll] returns it, for a lock that it had already. After Do a
//     [*DoError] has what the function returned.
//
// While calls of a Client are queued, it asks the store for a sign of life once a second,
// with one small read for all of them, unless the driver's own requests show one. A store
// that has not answered that for a second, nor any acquisition or renewal meanwhile, counts
// as away. So for a waiter two seconds of silence are an outage; a shorter one may not be.
//
// # Inside the package
//
// Calls go one way, and no layer calls one above it:
//
//	Client, Lock       the API: client.go, lock.go and the files named after their concept
//	  │
//	acquisition        acquisition.go, reentry.go: from options to a lease
//	  │
//	leases             leases.go, lease.go, renewal.go: validity, renewal, loss; leases.mu
//	  │
//	removals           removal.go: tickets to be removed from the store; removals.mu
//	  │
//	driver.Driver      the store
//
// All layers share the core (client.go), the contexts of requests (call.go), the watch on
// a store that calls wait for (outage.go) and the background tasks (tasks.go, schedule.go).
//
// A goroutine that takes several mutexes takes them from top to bottom. Nothing is locked
// under the mutexes of a lease's events (observed.mu) and of the goroutine that delivers
// them (background.mu). The mutexes of a call and of the watch come first: call.mu, waits.mu,
// tasks.mu. Of the driver only Bounds is called under a mutex; observers run under none, and
// a caller's context only under that of its own call. Three notifications go up: the driver reports that a
// ticket is queued (Request.Joined) or lost (LossNotifier), and a lease that ends ends its
// Locks.
package locker

import "context"

// Locker acquires locks. A Client is one; wrappers may be others. All methods
// may be called from many goroutines at once.
type Locker interface {
	// Acquire waits in the queue until name is granted, ctx ends, the wait limit
	// (WithWait) passes, or the store fails. ctx bounds the acquisition only: the
	// lock outlives it. Acquire returns within 100 ms after either limit, whatever
	// the store does. An acquisition that fails leaves no ticket in the queue: if the
	// store does not confirm that the ticket is gone, it is removed in the background.
	//
	// Under a ctx made by Lock.Context of the same Locker and name, and for an owner
	// (WithOwner) that holds name already, Acquire re-enters at once, with the same
	// token.
	//
	// If a limit passes before the store has confirmed that the ticket is queued, the
	// error is ErrUnavailable. Afterwards it is ErrNotAcquired (the wait limit) or the
	// error of ctx, joined with ErrUnavailable if the store has not answered for two
	// seconds, or has refused connections for one.
	//
	// Errors: ErrNotAcquired, ErrUnavailable, ErrUpgrade, ErrInvalidName,
	// ErrInvalidOption, ErrUnsupported, ErrClosed, those of ctx, and the store's own.
	Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// TryAcquire takes name only if it can be granted now. Otherwise it returns
	// ErrNotAcquired and leaves no ticket. It never overtakes a waiter.
	TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// Inspect reports the queue of name: the holders and the waiters, in order.
	Inspect(ctx context.Context, name string) (Queue, error)

	// Close releases what this Locker still holds, ends waiting Acquires with
	// ErrClosed, stops its goroutines, and closes what it opened. It does not wait for
	// work under a lock: the contexts of the locks end, but Do returns what its function
	// returns. So let the work end before. A second Close waits for the first, and
	// returns nil.
	Close() error
}
