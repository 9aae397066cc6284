package lockertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// faulty is a client of the memory store, over a connection that may fail.
type faulty struct {
	*memory.Driver
	notifyLoss func(driver.Hold, error)

	mu      sync.Mutex
	fault   fault
	changed chan struct{}          // closed when fault changes
	reaper  *time.Timer            // while the store cannot be reached: ends the waiting tickets
	waiting map[string]driver.Hold // by ID
	held    map[string]driver.Hold // by ID; some may be over
	answers map[string][]error     // by name
}

var (
	_ driver.Driver       = (*faulty)(nil)
	_ driver.Lister       = (*faulty)(nil)
	_ driver.Breaker      = (*faulty)(nil)
	_ driver.LossNotifier = (*faulty)(nil)
	_ driver.Bounder      = (*faulty)(nil)
	_ driver.Pinger       = (*faulty)(nil)
	_ driver.Shortener    = (*faulty)(nil)
)

func newFaulty(m *memory.Driver) *faulty {
	return &faulty{
		Driver: m, changed: make(chan struct{}), answers: make(map[string][]error),
		waiting: make(map[string]driver.Hold), held: make(map[string]driver.Hold),
	}
}

// String names the store.
func (d *faulty) String() string { return "lockertest" }

// Bounds implements driver.Bounder.
func (d *faulty) Bounds(ttl time.Duration) driver.Bounds {
	b := d.Driver.Bounds(ttl)
	b.Liveness = Liveness
	return b
}

// Acquire implements driver.Driver.
func (d *faulty) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.pass(ctx); errors.Is(err, errDown) {
		return driver.Grant{}, driver.NoTicket(err)
	} else if err != nil {
		return driver.Grant{}, err
	}
	if err := d.scripted(r.Name); err != nil {
		return driver.Grant{}, driver.NoTicket(refuse(ctx, r, err))
	}
	queued := r.Joined
	r.Joined = func() {
		d.wait(r.Hold(0))
		if queued != nil {
			queued()
		}
	}
	g, err := d.Driver.Acquire(ctx, r)
	if d.waited(r.ID) {
		g, err = d.deliver(ctx, r, g, err)
	}
	if err == nil {
		d.hold(r.Hold(g.Token))
	}
	return g, err
}

// wait notes a ticket that waits. waited forgets it, and reports whether it waited.
func (d *faulty) wait(h driver.Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting[h.ID] = h
}

func (d *faulty) waited(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.waiting[id]
	delete(d.waiting, id)
	return ok
}

func (d *faulty) hold(h driver.Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[h.ID] = h
}

// deliver returns the answer to a waiter, once answers of the store arrive. A lease
// that has begun before is renewed, if it is not over.
func (d *faulty) deliver(ctx context.Context, r driver.Request, g driver.Grant, err error) (driver.Grant, error) {
	late, unheard := d.listen(ctx)
	switch {
	case unheard != nil:
		return driver.Grant{}, unheard
	case err != nil || !late:
		return g, err
	}
	g.Asked = time.Now()
	return g, d.Driver.Renew(ctx, r.Hold(g.Token), r.TTL)
}

// Renew implements driver.Driver.
func (d *faulty) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	if err := d.pass(ctx); err != nil {
		return err
	}
	return d.Driver.Renew(ctx, h, ttl)
}

// Release implements driver.Driver.
func (d *faulty) Release(ctx context.Context, h driver.Hold) error {
	if err := d.pass(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.held, h.ID)
	d.mu.Unlock()
	return d.Driver.Release(ctx, h)
}

// Shorten implements driver.Shortener.
func (d *faulty) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	if err := d.pass(ctx); err != nil {
		return err
	}
	return d.Driver.Shorten(ctx, h, left)
}

// Inspect implements driver.Driver.
func (d *faulty) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if err := d.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Inspect(ctx, name)
}

// List implements driver.Lister.
func (d *faulty) List(ctx context.Context) ([]string, error) {
	if err := d.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.List(ctx)
}

// Break implements driver.Breaker.
func (d *faulty) Break(ctx context.Context, name string, token uint64) error {
	if err := d.pass(ctx); err != nil {
		return err
	}
	return d.Driver.Break(ctx, name, token)
}

// Ping implements driver.Pinger.
func (d *faulty) Ping(ctx context.Context) error { return d.pass(ctx) }

// Close implements driver.Driver.
func (d *faulty) Close() error {
	d.set(fault{}) // stops the reaper
	return d.Driver.Close()
}

// NotifyLoss implements driver.LossNotifier. A loss that the store pushes while it is
// down or hangs does not arrive.
func (d *faulty) NotifyLoss(notify func(driver.Hold, error)) {
	d.notifyLoss = notify
	d.Driver.NotifyLoss(func(h driver.Hold, cause error) {
		if f, _ := d.state(); !f.cut() {
			notify(h, cause)
		}
	})
}
