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
// Each lock name has a line. Whoever wants the lock takes a ticket, numbered by
// the store; an exclusive ticket is granted when no live ticket is ahead of
// it, a shared one when no exclusive ticket is ahead of it and fewer than its
// limit of shared ones. So the line is first come, first served, nobody
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
//   - The holder trusts a lease only until TTL, less a margin ([WithSafetyMargin]), after
//     the moment before the last successful renewal was sent, by its own
//     monotonic clock. Then [Lock.Done] is closed and the contexts of
//     [Lock.Context] end, whether or not the store has said anything.
//   - [Lock.Token] is a fencing token: it grows with every grant of the name.
//     A resource that refuses a token smaller than the largest it has seen is
//     safe from any late holder. See Kleppmann, "How to do distributed
//     locking", 2016, and Chubby's sequencers (Burrows, OSDI 2006).
//
// A lock without a fencing token protects as well as the clocks and the pauses
// of its holder allow, and no better. On any store.
package locker

import (
	"context"
)

// Locker acquires locks. A Client is one; wrappers may be others. All methods
// may be called from many goroutines at once.
type Locker interface {
	// Acquire waits in line until name is granted, ctx ends, the wait limit
	// (WithWait) passes, or the store fails. ctx bounds the acquisition only:
	// the lock outlives it. An acquisition that fails leaves no ticket behind.
	//
	// Under a ctx made by Lock.Context of the same Locker and name, and for
	// an owner (WithOwner) that holds name already, Acquire re-enters at
	// once, with the same token.
	//
	// Errors: ErrNotAcquired, ErrUpgrade, ErrInvalidName, ErrInvalidOption,
	// ErrUnsupported, ErrClosed, those of ctx, and the store's own.
	Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// TryAcquire takes name only if it can be granted now; otherwise it
	// returns ErrNotAcquired and leaves no ticket. It never jumps the line.
	TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error)

	// Inspect reports the line of name: who holds, who waits, in order.
	Inspect(ctx context.Context, name string) (Queue, error)

	// Close releases what this Locker still holds, ends waiting Acquires with
	// ErrClosed, stops its goroutines, and closes what it opened. A second
	// Close returns nil.
	Close() error
}
