package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Driver is a client of a store in memory. Several clients of one store exclude each
// other as processes on one server do.
type Driver struct {
	s          *store
	name       string // of a shared store
	notifyLoss func(driver.Hold, error)

	closing chan struct{}
	closed  bool // guarded by s.mu
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Lister       = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.LossNotifier = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.Shortener    = (*Driver)(nil)
)

var errBroken = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// New returns a client of a new store. Join returns more clients of it.
func New() *Driver { return newClient(newStore(), "") }

// Join returns another client of d's store.
func (d *Driver) Join() *Driver {
	if d.s.shared {
		return Open(d.name)
	}
	return newClient(d.s, "")
}

// Open returns a client of the store of that name, which all its clients in the
// process share. The store ends with its last client, or later with the last minimum
// hold in it.
func Open(name string) *Driver { return newClient(openShared(name), name) }

func newClient(s *store, name string) *Driver {
	return &Driver{s: s, name: name, closing: make(chan struct{})}
}

// String names the store.
func (d *Driver) String() string { return "memory" }

// Bounds implements driver.Bounder. Liveness is 0: waiters die with the store.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MinTTL: time.Nanosecond, Crash: ttl}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(notify func(driver.Hold, error)) { d.notifyLoss = notify }

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	joined := r.Joined
	r.Joined = nil // the ticket must not keep what it refers to
	t, err := d.enqueue(r)
	if err != nil {
		return driver.Grant{}, err
	}
	if t.done == nil { // granted at once
		return driver.Grant{Token: t.token, Asked: t.asked}, nil
	}
	if joined != nil {
		joined()
	}
	select {
	case <-t.done:
		return d.outcome(t)
	case <-ctx.Done():
		return driver.Grant{}, context.Cause(ctx)
	case <-d.closing:
		return driver.Grant{}, driver.ErrClosed
	}
}

// enqueue adds a ticket to the queue, or finds it there.
func (d *Driver) enqueue(r driver.Request) (*ticket, error) {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.closed {
		return nil, driver.ErrClosed
	}
	if q := d.s.queues[r.Name]; q != nil {
		q.settle(now)
	}
	if t := d.s.tickets[r.ID]; t != nil {
		return t, nil
	}
	q := d.s.queue(r.Name)
	if !r.Wait && !q.grantable(r) {
		return nil, driver.ErrNotAcquired
	}
	return q.add(d, r, now), nil
}

// outcome returns the result of a ticket that waits no longer.
func (d *Driver) outcome(t *ticket) (driver.Grant, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if !t.held {
		return driver.Grant{}, driver.ErrLost
	}
	return driver.Grant{Token: t.token, Asked: t.asked}, nil
}

// Renew implements driver.Driver.
func (d *Driver) Renew(_ context.Context, h driver.Hold, ttl time.Duration) error {
	return d.s.change(h, true, func(t *ticket, q *queue, now time.Time) {
		if until := now.Add(ttl); until.After(t.until) {
			t.until = until // q.soonest is a lower bound and need not change
			q.arm()
		}
	})
}

// Shorten implements driver.Shortener.
func (d *Driver) Shorten(_ context.Context, h driver.Hold, left time.Duration) error {
	return d.s.change(h, true, func(t *ticket, q *queue, now time.Time) {
		if until := now.Add(left); until.Before(t.until) {
			t.until = until
			if until.Before(q.soonest) {
				q.soonest = until
			}
			q.settle(now)
		}
	})
}

// Release implements driver.Driver.
func (d *Driver) Release(_ context.Context, h driver.Hold) error {
	return d.s.change(h, false, func(t *ticket, q *queue, now time.Time) {
		q.remove(t)
		q.settle(now)
	})
}

// Break implements driver.Breaker.
func (d *Driver) Break(_ context.Context, name string, token uint64) error {
	t := d.s.breakTicket(name, token)
	if t == nil {
		return driver.ErrLost
	}
	if t.held && t.d.notifyLoss != nil {
		t.d.notifyLoss(t.req.Hold(t.token), errBroken)
	}
	return nil
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(_ context.Context, name string) ([]driver.Ticket, error) {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.closed {
		return nil, driver.ErrClosed
	}
	q := d.s.queues[name]
	if q == nil {
		return nil, nil
	}
	q.settle(now)
	return q.show(now), nil
}

// List implements driver.Lister.
func (d *Driver) List(context.Context) ([]string, error) {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	var names []string
	for name, q := range d.s.queues {
		if q.settle(now); d.s.queues[name] == q {
			names = append(names, name)
		}
	}
	return names, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.s.mu.Lock()
	first := !d.closed
	d.closed = true
	d.s.mu.Unlock()
	if !first {
		return nil
	}
	close(d.closing)
	if d.s.shared {
		closeShared(d.name, d.s)
	}
	return nil
}
