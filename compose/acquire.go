package compose

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver. An error leaves what was got to Release, as
// one of a single store does.
func (m *Multi) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if !r.Wait {
		if err := m.look(ctx, r); err != nil {
			return driver.Grant{}, err
		}
	}
	a := &acquisition{m: m, r: r, grants: make([]driver.Grant, len(m.parts))}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	defer a.cancel(nil)
	m.enter(r.ID, a.lost)
	g, err := a.run()
	switch {
	case err == nil:
		m.granted(r.ID)
		return g, nil
	case errors.Is(err, driver.ErrNotAcquired):
		return driver.Grant{}, m.withdraw(ctx, r)
	case context.Cause(a.ctx) != nil && ctx.Err() == nil:
		return driver.Grant{}, m.lostWhileWaiting(ctx, r, context.Cause(a.ctx))
	}
	return driver.Grant{}, err
}

// look refuses a try that a store would refuse, before it is queued anywhere.
func (m *Multi) look(ctx context.Context, r driver.Request) error {
	return m.each(func(_ int, d driver.Driver) error {
		q, err := d.Inspect(ctx, r.Name)
		if err != nil {
			return driver.NoTicket(err)
		}
		if !driver.Grantable(append(q, r.Ticket(0)), len(q)) {
			return driver.ErrNotAcquired
		}
		return nil
	})
}

// enter opens the book of a ticket.
func (m *Multi) enter(id string, lost func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.books[id] = &book{tokens: make([]uint64, len(m.parts)), released: make([]bool, len(m.parts)), lost: lost}
}

func (m *Multi) granted(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.books[id]; b != nil {
		b.granted, b.lost = true, nil
	}
}

// withdraw takes a try back from the stores that have granted it, because another
// has refused it. Only when that is confirmed it is a refusal.
func (m *Multi) withdraw(ctx context.Context, r driver.Request) error {
	if err := m.Release(ctx, r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
		return fmt.Errorf("refused by one store, and not yet removed from another: %w", err)
	}
	return driver.ErrNotAcquired
}

// lostWhileWaiting gives the rest up when a part was lost while others were
// waited for, so that the core queues again.
func (m *Multi) lostWhileWaiting(ctx context.Context, r driver.Request, cause error) error {
	if err := m.Release(ctx, r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	return fmt.Errorf("%w while the other stores were waited for: %w", driver.ErrLost, cause)
}

// acquisition is one Acquire: it queues on one part after the other, and renews
// meanwhile what it has got.
type acquisition struct {
	m      *Multi
	r      driver.Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	once   sync.Once // calls Joined

	mu     sync.Mutex
	grants []driver.Grant // by part, as renewed last
	got    int
}

// lost ends the acquisition: a part that was granted is gone.
func (a *acquisition) lost(cause error) { a.cancel(cause) }

func (a *acquisition) run() (driver.Grant, error) {
	stop := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(stop)
	for i, d := range a.m.parts {
		g, err := d.Acquire(a.ctx, a.request(d))
		if err != nil {
			return driver.Grant{}, fmt.Errorf("%s: %w", name(d), err)
		}
		a.add(i, g)
		if i == 0 && len(a.m.parts) > 1 {
			group.Go(func() { a.keep(stop) })
		}
	}
	return a.grant()
}

// request is the request for one part.
func (a *acquisition) request(d driver.Driver) driver.Request {
	r := a.r
	r.TTL = max(r.TTL, driver.BoundsOf(d, r.TTL).MinTTL)
	if r.Joined != nil {
		r.Joined = func() { a.once.Do(a.r.Joined) }
	}
	return r
}

func (a *acquisition) add(i int, g driver.Grant) {
	a.mu.Lock()
	a.grants[i] = g
	a.got = i + 1
	a.mu.Unlock()
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if b := a.m.books[a.r.ID]; b != nil {
		b.tokens[i] = g.Token
	}
}

// keep renews what was granted while the rest is waited for. What cannot be
// renewed until its lease is over ends the acquisition.
func (a *acquisition) keep(stop <-chan struct{}) {
	tick := time.NewTicker(a.r.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		a.mu.Lock()
		got := a.got
		a.mu.Unlock()
		for i := range got {
			if err := a.renew(i); err != nil {
				a.cancel(err)
				return
			}
		}
	}
}

// renew renews one part. An error says that it is lost.
func (a *acquisition) renew(i int) error {
	a.mu.Lock()
	g := a.grants[i]
	a.mu.Unlock()
	asked := time.Now()
	ctx, cancel := context.WithTimeout(a.ctx, a.r.TTL/6)
	defer cancel()
	err := a.m.parts[i].Renew(ctx, a.r.Hold(g.Token), a.r.TTL)
	switch {
	case errors.Is(err, driver.ErrLost):
		return err
	case err == nil:
		g.Asked, g.Claim = asked, 0
		a.mu.Lock()
		a.grants[i] = g
		a.mu.Unlock()
	case time.Since(g.Asked) >= lease(a.r, g):
		return fmt.Errorf("not renewed in time: %w", err)
	}
	return nil
}

// lease is how long a grant lasts from Asked.
func lease(r driver.Request, g driver.Grant) time.Duration {
	length := r.TTL
	for _, d := range []time.Duration{g.TTL, g.Claim} {
		if d > 0 {
			length = min(length, d)
		}
	}
	return length
}

// grant is the grant of all: the token of the authority, and the lease that ends
// first.
func (a *acquisition) grant() (driver.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := driver.Grant{Token: a.grants[a.m.authority].Token, Asked: a.grants[0].Asked}
	for _, g := range a.grants {
		if g.Asked.Before(all.Asked) {
			all.Asked = g.Asked
		}
		if g.TTL > 0 && (all.TTL == 0 || g.TTL < all.TTL) {
			all.TTL = g.TTL
		}
		if g.Claim > 0 && (all.Claim == 0 || g.Claim < all.Claim) {
			all.Claim = g.Claim
		}
	}
	if err := context.Cause(a.ctx); err != nil {
		return driver.Grant{}, err
	}
	return all, nil
}
