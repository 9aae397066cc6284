package sim

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
)

// all makes the world "all": each process needs two stores. In some seeds the first is one itself that needs
// two parts, and asks again with the same ticket; in some, programs move from one store to the other, and some of
// them use the one alone whose tokens count.
func (r *runner) all(two func(first, second string, join func(process string, a, b driver.Driver) driver.Driver)) {
	rnd := newStream(r.w.seed, "all")
	second, authority, nested := pick(rnd, "bank", "memcached"), 1, rnd.one(4)
	alone := make(map[string]bool)
	r.w.both = true
	if rnd.one(2) {
		authority, r.w.mixed = rnd.n(2), true
		for _, p := range r.plan.processes {
			alone[p.name] = rnd.one(3)
		}
	}
	if slices.ContainsFunc(r.plan.processes, func(p *processPlan) bool { return p.alone }) {
		authority, r.w.mixed = 1, true
		for _, p := range r.plan.processes {
			alone[p.name] = p.alone
		}
	}
	two("bank", second, func(process string, a, b driver.Driver) driver.Driver {
		parts := []driver.Driver{a, b}
		if alone[process] {
			return r.w.checkAll(process, compose.All(parts[authority]), authority)
		}
		if nested {
			parts[1] = r.w.checkAll(process, compose.All(b), 1)
		}
		return r.w.checkAll(process, compose.All(parts...).Authority(authority), 0, 1)
	})
}

// allDriver is deeper in checkedAll than what checks its answers.
type allDriver struct{ *compose.AllDriver }

type checkedAll struct {
	*contract
	allDriver
	servers []*server
}

// Acquire checks that no store has the ticket of a call that says that it is gone, but for a request that was under way then
// and is looked for a moment later.
func (c checkedAll) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	asked := time.Now()
	g, err := c.contract.Acquire(ctx, r)
	if ctx.Err() != nil || !errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrNotAcquired) || c.w.lateSince(c.process, asked) {
		return g, err
	}
	c.w.at(time.Now().Add(time.Second), func() {
		for _, s := range c.servers {
			if there, _ := s.model.(identified).lease(r.Name, r.ID, asked); there && !c.closed.Load() {
				c.w.fail("%s: %s has the ticket %s for %s, and its driver has said that it is gone: %v", c.process, s.name, c.w.ticket(r.ID), r.Name, err)
			}
		}
	})
	return g, err
}

// lateSince reports whether a fault may have made a request of a process late since then.
func (w *world) lateSince(process string, t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.faults, func(f interval) bool {
		return f.kind != "cut" && (f.process == "" || f.process == process) && f.to.Add(recovery).After(t)
	})
}

func (w *world) checkAll(process string, d *compose.AllDriver, on ...int) driver.Driver {
	checked := checkedAll{contract: &contract{w: w, d: d, process: process}, allDriver: allDriver{d}}
	for _, i := range on {
		checked.servers = append(checked.servers, w.servers[i])
	}
	return checked
}

// fallbackDriver is deeper in checkedFallback than what checks its answers.
type fallbackDriver struct{ *compose.FallbackDriver }

type checkedFallback struct {
	*contract
	fallbackDriver
	first *primary
}

// primary is the first store of a Fallback.
type primary struct {
	*bankClient
	answered atomic.Int64 // when it has told a waiter that its ticket is gone
}

func (p *primary) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := p.bankClient.Acquire(ctx, r)
	if errors.Is(err, driver.ErrLost) && ctx.Err() == nil {
		p.answered.Store(time.Now().UnixNano())
	}
	return g, err
}

// Acquire checks that a waiter that the first store has just answered is not granted by the second, beside who holds there.
func (c checkedFallback) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	asked := time.Now()
	since := time.Unix(0, c.first.answered.Load())
	g, err := c.contract.Acquire(ctx, r)
	if err == nil && g.Degraded != nil && errors.Is(g.Degraded, driver.ErrNoTicket) && asked.Sub(since) < 50*time.Millisecond && !c.w.begins(since) {
		c.w.fail("%s: the second store has granted %s, %v after the first had answered: %v", c.process, r.Name, asked.Sub(since), g.Degraded)
	}
	return g, err
}

// begins reports whether a fault has begun since then.
func (w *world) begins(since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.faults, func(f interval) bool { return f.from.After(since) })
}

func (w *world) fallback(process string, a, b driver.Driver) driver.Driver {
	first := &primary{bankClient: a.(*bankClient)}
	d := compose.Fallback(first, compose.TokenBase(b, 1<<40))
	return checkedFallback{&contract{w: w, d: d, process: process}, fallbackDriver{d}, first}
}
