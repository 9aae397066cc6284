// Package locker gives processes time-bounded ownership of named resources, on
// whichever store they already run: Redis, etcd, ZooKeeper, Consul,
// PostgreSQL, MySQL, or memory.
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
// Each lock name has a queue. Whoever wants the lock takes a ticket, numbered by
// the store; an exclusive ticket is granted when no live ticket is ahead of
// it, a shared one when no exclusive ticket is ahead of it and fewer than its
// limit of shared ones. So the queue is first come, first served, nobody
// starves, and one rule serves as mutex, readers/writer lock ([Shared]) and
// semaphore ([Limit]).
//
// # Leases and fencing
//
// A granted ticket is held under a lease of TTL ([WithTTL]), renewed every TTL/3
// for as long as the process lives ([WithoutRenewal] turns that off). A process
// that dies loses its locks when their leases end. A process that is paused,
// or cut off from the store, loses them too, and cannot know that at once. Two
// things help:
//
//   - The holder counts the validity of a lease from the moment before the last
//     successful renewal was sent, for TTL less a safety margin
//     ([WithSafetyMargin]), by its own monotonic clock, and through the time that
//     the machine was suspended. Then [Lock.Done] is closed and the contexts of
//     [Lock.Context] end, whether or not the store has said anything, and before
//     the store grants the lock to anybody else. There is one exception: a lock
//     that somebody takes away with [Client.Break] is free at once, and its
//     holder learns of that when the store tells it, or at the next renewal.
//   - [Lock.Token] is a fencing token: it grows with every grant of the name.
//     A resource that refuses a token smaller than the largest it has seen is
//     safe from any late holder. See Kleppmann, "How to do distributed
//     locking", 2016, and Chubby's sequencers (Burrows, OSDI 2006).
//
// A lock without a fencing token protects as well as the clocks and the pauses
// of its holder allow, and no better. On any store.
//
// # Errors
//
// Test for the sentinels with errors.Is. ErrNotAcquired says that somebody else
// has the lock; ErrUnavailable, that the store did not answer, so that nobody
// knows: where both are asked for, ask for ErrUnavailable first. A waiter whose
// store went away after its ticket was queued gets both.
package locker

import (
	"context"
)

// Locker acquires locks. A Client is one; wrappers may be others. All methods
// may be called from many goroutines at once.
type Locker interface {
	// Acquire waits in the queue until name is granted, ctx ends, the wait limit
	// (WithWait) passes, or the store fails. ctx bounds the acquisition only:
	// the lock outlives it. It comes back within 100 ms of either limit,
	// whatever the store does. An acquisition that fails leaves no ticket
	// behind: one that the store does not confirm to be gone is removed in the
	// background.
	//
	// Under a ctx made by Lock.Context of the same Locker and name, and for
	// an owner (WithOwner) that holds name already, Acquire re-enters at
	// once, with the same token.
	//
	// Until the store has said that the ticket is queued, the end of a limit is
	// ErrUnavailable; afterwards it is ErrNotAcquired (the wait limit) or the
	// error of ctx, joined with the store's own if it does not answer.
	//
	// Errors: ErrNotAcquired, ErrUnavailable, ErrUpgrade, ErrInvalidName,
	// ErrInvalidOption, ErrUnsupported, ErrClosed, those of ctx, and the store's
	// own.
	Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// TryAcquire takes name only if it can be granted now; otherwise it
	// returns ErrNotAcquired and leaves no ticket. It never jumps the queue.
	TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// Inspect reports the queue of name: who holds, who waits, in order.
	Inspect(ctx context.Context, name string) (Queue, error)

	// Close releases what this Locker still holds, ends waiting Acquires with
	// ErrClosed, stops its goroutines, and closes what it opened. A second
	// Close returns nil.
	Close() error
}
