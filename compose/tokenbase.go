package compose

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// maxTokenBase is so low that its sum with any token of a store is a uint64.
const maxTokenBase = 1 << 62

// TokenBase returns d with n added to all its fencing tokens. It is for a store that
// takes over from another one whose tokens were greater: n is at least the greatest
// token that the other has given or will give. All programs use the same n, and
// keep it for good: without it, tokens fall.
//
// The right n depends on both stores. Redis and PostgreSQL number by the server's
// clock, in microseconds, so that between them tokens go on growing without n as far as
// the clocks agree; n makes it certain. MySQL's numbers are a thousand times as great.
// etcd and Consul count, and ZooKeeper's numbers use 64 bits: read a token of each. A resource that keeps tokens in a
// signed column of 64 bits needs n and the store's tokens to stay below 1<<63 together.
//
// Closing the driver that it returns closes d. It panics when d is nil or n is above
// 1<<62.
func TokenBase(d driver.Driver, n uint64) driver.Driver {
	if d == nil {
		panic("compose: TokenBase: the driver is nil")
	}
	if n > maxTokenBase {
		panic(fmt.Sprintf("compose: TokenBase(%d): want at most %d", n, uint64(maxTokenBase)))
	}
	return &based{d: d, n: n}
}

// based is the driver that TokenBase makes. It passes on everything but tokens unchanged.
type based struct {
	d driver.Driver
	n uint64
}

var (
	_ driver.BatchRenewer = (*based)(nil)
	_ driver.Lister       = (*based)(nil)
	_ driver.Breaker      = (*based)(nil)
	_ driver.LossNotifier = (*based)(nil)
	_ driver.Shortener    = (*based)(nil)
	_ driver.Bounder      = (*based)(nil)
	_ driver.Pinger       = (*based)(nil)
)

// up turns a token of d into one of based; 0 stays 0, which is no token.
func (b *based) up(token uint64) uint64 {
	if token == 0 {
		return 0
	}
	return token + b.n
}

// down turns a hold of based into one of d.
func (b *based) down(h driver.Hold) driver.Hold {
	if h.Token > b.n {
		h.Token -= b.n
	} else {
		h.Token = 0
	}
	return h
}

func (b *based) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.d.Acquire(ctx, r)
	g.Token = b.up(g.Token)
	return g, err
}

func (b *based) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return b.d.Renew(ctx, b.down(h), ttl)
}

func (b *based) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	batch := make([]driver.Renewal, len(rs))
	for i, r := range rs {
		batch[i] = driver.Renewal{Hold: b.down(r.Hold), TTL: r.TTL}
	}
	return renewAll(ctx, b.d, batch)
}

func (b *based) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	return shorten(ctx, b.d, b.down(h), left)
}

func (b *based) Release(ctx context.Context, h driver.Hold) error { return b.d.Release(ctx, b.down(h)) }

func (b *based) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	q, err := b.d.Inspect(ctx, name)
	for i := range q {
		q[i].Token = b.up(q[i].Token)
	}
	return q, err
}

func (b *based) Break(ctx context.Context, name string, token uint64) error {
	if token <= b.n {
		return driver.ErrLost
	}
	return breakTicket(ctx, b.d, name, token-b.n)
}

func (b *based) NotifyLoss(notify func(driver.Hold, error)) {
	if n, ok := b.d.(driver.LossNotifier); ok {
		n.NotifyLoss(func(h driver.Hold, cause error) {
			h.Token = b.up(h.Token)
			notify(h, cause)
		})
	}
}

func (b *based) List(ctx context.Context) ([]string, error) { return list(ctx, b.d) }
func (b *based) Bounds(ttl time.Duration) driver.Bounds     { return driver.BoundsOf(b.d, ttl) }
func (b *based) Ping(ctx context.Context) error             { return ping(ctx, b.d) }
func (b *based) Close() error                               { return b.d.Close() }
func (b *based) String() string                             { return nameOf(b.d) }
