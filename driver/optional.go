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

// BatchRenewer renews many leases at once. RenewAll returns one error for each
// entry, in order, with the meaning of Renew. A result of another length counts
// as a failed request.
//
// Without it the core calls Renew for each lease, a few at a time. With it the
// scheduler of the core never calls Renew: a wrapper that embeds a driver and
// overrides Renew must override RenewAll too.
type BatchRenewer interface {
	RenewAll(ctx context.Context, rs []Renewal) []error
}

// Lister lists the names that have a live ticket, in any order, each once.
//
// Without it Client.List is ErrUnsupported.
type Lister interface {
	List(ctx context.Context) ([]string, error)
}

// Breaker removes a ticket by its number, whoever owns it. The next waiter is
// granted as after a release (D13). ErrLost says that no such ticket is queued.
// If the holder's driver learns of the removal, it notifies the core
// ([LossNotifier]) with a cause that wraps ErrLost.
//
// Without it Client.Break is ErrUnsupported.
type Breaker interface {
	Break(ctx context.Context, name string, token uint64) error
}

// LossNotifier notifies the core of a loss that the store pushes: the end of a
// session, a break, a deletion by an operator. The core calls NotifyLoss once,
// before any other method. The driver may call notify from any goroutine, but not
// while it holds a lock that Acquire, Bounds, Renew or Release take. Notify ignores tickets
// that the core does not hold, and runs no code of the program.
//
// Without it the core notices a loss at the next renewal, or when the validity of
// the lease ends.
type LossNotifier interface {
	NotifyLoss(notify func(h Hold, cause error))
}

// Shortener makes the lease of a held ticket end d from now, if it would end later.
// The core calls it for a lock within its minimum hold (D20) when the Client is
// closed, with what is left of that hold, and sends nothing more for the ticket
// afterwards, unless it gets no answer. The lease does not end before d has passed since
// the call. ErrLost says that the ticket is not there or not held; ErrUnsupported, from a
// wrapper, that the store cannot do that.
//
// Without it such a ticket stays for the rest of its TTL.
type Shortener interface {
	Shorten(ctx context.Context, h Hold, d time.Duration) error
}

// Bounds are the times that a driver states for a lock of one TTL. The
// conformance suite checks them.
type Bounds struct {
	// MinTTL is the shortest lease that the store can give. For a shorter TTL
	// the core ends the lease itself while its process lives.
	MinTTL time.Duration
	// MaxTTL is the longest lease that the store can give; 0: any. A longer
	// WithMinHold is ErrUnsupported.
	MaxTTL time.Duration
	// Crash is the longest time from the last renewal of a holder that died
	// to the grant of a live waiter.
	Crash time.Duration
	// Liveness is how long dead waiters can delay the queue, however many there are.
	Liveness time.Duration
	// Silence is for how long the server of a name has to be silent until a wait that ends says
	// so by itself (D7); 0: it does not, and the core asks the store.
	Silence time.Duration
}

// Pinger sends the cheapest request that shows that the store answers and that
// the caller's rights suffice to acquire and release.
//
// Without it the core inspects a name that nobody uses.
type Pinger interface {
	Ping(ctx context.Context) error
}

// ServerVersioner returns the name and the version of the store's software, such as
// "Redis 7.0.15", for people. For a store of several servers it returns the version
// of one that answers, or each version once. It may need a right that locks do not
// need.
//
// Without it, or when it fails, tools report the version as unknown.
type ServerVersioner interface {
	ServerVersion(ctx context.Context) (string, error)
}

// Bounder states the bounds for a lock of the given TTL. Bounds sends no request
// and notifies of no loss: the core calls it at any time, also while it holds a
// mutex of its own.
//
// Without it the core assumes what [BoundsOf] returns then.
type Bounder interface {
	Bounds(ttl time.Duration) Bounds
}

// BoundsOf returns the bounds that d states for a lock of the given TTL. If it states none,
// they are any TTL, a crash bound one second longer than it, and a liveness of five seconds.
func BoundsOf(d Driver, ttl time.Duration) Bounds {
	if b, ok := d.(Bounder); ok {
		return b.Bounds(ttl)
	}
	return Bounds{Crash: ttl + time.Second, Liveness: 5 * time.Second}
}
