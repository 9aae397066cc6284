package driver

import (
	"context"
	"time"
)

// A Renewal is one entry of a batch.
type Renewal struct {
	Hold
	TTL time.Duration
}

// BatchRenewer renews many leases at once. The answer has one error for each
// entry, in order, with the meaning of Renew; an answer of another length is
// taken for a failed request.
//
// Without it the core calls Renew for each, a few at a time. With it the core
// never calls Renew on schedule: a wrapper that embeds a driver and overrides
// Renew has to override RenewAll too.
type BatchRenewer interface {
	RenewAll(ctx context.Context, rs []Renewal) []error
}

// Lister lists the names that have a live ticket, in any order, each once.
//
// Without it Client.List is ErrUnsupported.
type Lister interface {
	List(ctx context.Context) ([]string, error)
}

// Breaker removes a ticket by its number, whoever's it is, and whatever put it
// there; the waiter that is next is granted as after a release. ErrLost says that
// no such ticket is queued. The holder's driver, where it learns of the removal,
// tells of it with a cause that wraps ErrLost.
//
// Without it Client.Break is ErrUnsupported.
type Breaker interface {
	Break(ctx context.Context, name string, token uint64) error
}

// LossNotifier tells of a loss that the store pushed: the end of a session,
// a break, a deletion by an operator. The core calls NotifyLoss once, before
// any other method; tell may be called from any goroutine, must not be called
// with locks held that Acquire, Renew or Release take, and ignores tickets
// that the core does not hold.
//
// Without it a loss is noticed at the next renewal, or when the validity of the
// lease ends.
type LossNotifier interface {
	NotifyLoss(tell func(h Hold, cause error))
}

// Bounds are the times that a driver states for a lock of one TTL, and that
// conformance holds it to.
type Bounds struct {
	// MinTTL is the shortest lease the store can give. A caller who wants a
	// shorter one gets it from the core, which ends the lease itself while
	// its process lives.
	MinTTL time.Duration
	// MaxTTL is the longest lease the store can give; 0: any. A WithMinHold
	// that is longer is ErrUnsupported.
	MaxTTL time.Duration
	// Crash is the longest time from the last renewal of a holder that died
	// to the grant of a live waiter.
	Crash time.Duration
	// Liveness is the longest time that all the dead waiters ahead, together,
	// delay the queue.
	Liveness time.Duration
}

// Pinger sends the cheapest request that shows that the store answers and that
// the rights suffice to acquire and release.
//
// Without it the core inspects a name that nobody uses.
type Pinger interface {
	Ping(ctx context.Context) error
}

// ServerVersioner tells the name and the version of the store's software, such as
// "Redis 7.0.15", for people. A store of several servers tells of one that answers, or
// of each that differs. It may need a right that locks do not need.
//
// Without it, or when it fails, tools say that the version is not known.
type ServerVersioner interface {
	ServerVersion(ctx context.Context) (string, error)
}

// Bounder states the bounds for a lock of the given TTL. It computes them, or
// knows them: the core asks at any time, also under a lock of its own, so
// that Bounds asks no store and tells of no loss.
//
// Without it the core assumes DefaultBounds.
type Bounder interface {
	Bounds(ttl time.Duration) Bounds
}

// DefaultBounds are those of a driver that states none: any TTL, a crash
// noticed a second after it, and dead waiters within five seconds.
func DefaultBounds(ttl time.Duration) Bounds {
	return Bounds{Crash: ttl + time.Second, Liveness: 5 * time.Second}
}

// BoundsOf returns the bounds that d states for a lock of the given TTL.
func BoundsOf(d Driver, ttl time.Duration) Bounds {
	if b, ok := d.(Bounder); ok {
		return b.Bounds(ttl)
	}
	return DefaultBounds(ttl)
}
