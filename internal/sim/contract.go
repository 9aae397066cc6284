package sim

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	lockerredis "github.com/lockerproject/locker/driver/redis"
)

// What a driver answers is compared with what its servers have, by the ID of the ticket: the core hides many untrue
// answers, for it looks again.

// identified is a model that knows tickets by their IDs.
type identified interface {
	// lease returns whether a ticket is there, and until when it holds, by the true time; zero: it waits, or nobody knows. Of
	// several servers those count that have it on a majority, and of servers that may lose data, those that have lost none since then.
	lease(name, id string, since time.Time) (there bool, until time.Time)
}

// contract is the driver of one process, and checks its answers: D7, D9, D11, D12 and D13 of package driver.
type contract struct {
	w *world
	m identified // nil: a driver over several stores
	d interface {
		driver.Driver
		driver.BatchRenewer
	}
	process string
	trusts  bool // a renewal does not look for each ticket
	again   bool // a request that was not answered is repeated, as package compose does
	hasty   bool // a ticket is released when its caller leaves, while the request for it goes on for a moment
	closed  atomic.Bool
}

// departed is a ticket of which a driver has said that it is gone for good.
type departed struct {
	name, process, by string
	asked, at         time.Time
}

// gone notes that a driver has said so to what was asked then. It must not be there now.
func (c *contract) gone(name, id, by string, asked time.Time) {
	if c.m == nil {
		return
	}
	if there, _ := c.m.lease(name, id, asked); there && !c.w.lostSince(asked) {
		c.w.fail("%s: the ticket %s for %s is there, and its driver says that it is gone: %s", c.process, c.w.ticket(id), name, by)
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.departed == nil {
		c.w.departed = make(map[string]departed)
	}
	c.w.departed[id] = departed{name, c.process, by, asked, time.Now()}
}

// Close implements driver.Driver. It takes 150 ms at the most, and may be called twice.
func (c *contract) Close() error {
	begun, again := time.Now(), c.closed.Swap(true)
	err := c.d.Close()
	if took := time.Since(begun); took > 150*time.Millisecond {
		c.w.fail("%s: a driver has taken %v to close: %v", c.process, took, err)
	}
	if again && err != nil {
		c.w.fail("%s: the second Close of a driver: %v", c.process, err)
	}
	return err
}

// back returns a check that a method has returned within 50 ms after its context has ended, and what it has called.
func (c *contract) back(ctx context.Context, what string) (check func(called time.Time, err error)) {
	over := make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, func() { over <- time.Now() })
	return func(called time.Time, err error) {
		if stop() {
			return
		}
		if late := time.Since(latest(<-over, called)); late > 50*time.Millisecond {
			c.w.fail("%s: %s has come back %v after the end of its context: %v", c.process, what, late, err)
		}
	}
}

// NotifyLoss implements driver.LossNotifier, if the driver does: it notifies of no loss of a ticket that is there.
func (c *contract) NotifyLoss(f func(driver.Hold, error)) {
	n, ok := c.d.(driver.LossNotifier)
	if !ok {
		return
	}
	n.NotifyLoss(func(h driver.Hold, cause error) {
		switch {
		case c.m == nil:
		case c.w.slow > 0 && errors.Is(cause, driver.ErrLost): // a repair that was under way may come to a node of Redlock after the break
			c.cleared(h, time.Now(), nodesAsked+3*time.Second)
		default:
			if there, _ := c.m.lease(h.Name, h.ID, c.w.begun); there {
				c.w.fail("%s: the ticket %s for %s is there, and its driver notifies of its loss: %v", c.process, c.w.ticket(h.ID), h.Name, cause)
			}
		}
		f(h, cause)
	})
}

// comesBack checks, after a server has done something for tickets, that none is there that has departed. A server that
// has lost data since may have it again.
func (w *world) comesBack(s *server, ids []string, there func(name, id string, since time.Time) bool) {
	for _, id := range ids {
		w.mu.Lock()
		d, ok := w.departed[id]
		w.mu.Unlock()
		if ok && !s.lostSince(d.at) && there(d.name, id, d.at) {
			w.mu.Lock()
			delete(w.departed, id)
			w.mu.Unlock()
			w.fail("%s: the ticket %s for %s is there, and its driver has said that it is gone, %v before: %s", d.process, w.ticket(id), d.name, time.Since(d.at), d.by)
		}
	}
}

// Acquire checks that a lease lasts as long in the store as its holder is told, and notes tickets that are gone.
func (c *contract) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	c.w.mu.Lock()
	delete(c.w.departed, r.ID) // it is asked for again
	c.w.mu.Unlock()
	asks(ctx, r)
	asked := time.Now()
	asking, joins := c.joinsOnce(r)
	asks := ctx
	if c.hasty {
		longer, end := context.WithCancelCause(context.WithoutCancel(ctx))
		defer end(nil)
		stop := context.AfterFunc(ctx, func() {
			c.w.at(time.Now().Add(50*time.Millisecond), func() { end(context.Cause(ctx)) })
			c.releaseEarly(ctx, r.Hold(0))
		})
		defer stop()
		asks = longer
	}
	back := c.back(asks, "Acquire")
	g, err := c.d.Acquire(asks, asking)
	back(joins.told, err)
	open := isServerOfSQL(c.m) // README.md says what is open there
	if joins.said.Load() && !open && err != nil && !isOneOf(err, driver.ErrLost, driver.ErrClosed, lockerredis.ErrReplicas) && (asks.Err() == nil || !errors.Is(err, context.Cause(asks))) {
		c.w.fail("%s: an error that makes no sense after the ticket %s for %s was queued: %v", c.process, c.w.ticket(r.ID), r.Name, err)
	}
	if c.again && ctx.Err() == nil && driver.IsUnavailable(err) && !errors.Is(err, driver.ErrNoTicket) {
		g, err = c.d.Acquire(asks, asking)
	}
	if c.hasty && ctx.Err() != nil { // it is being released
		return driver.Grant{}, context.Cause(ctx)
	}
	switch {
	case err == nil:
		c.lasts(r, g)
		c.acknowledged(r.Name, asked)
		if m, ok := c.m.(interface{ signsOf() *signs }); ok {
			m.signsOf().stayed(c, r.Name, r.ID, g.Asked)
		}
	case errors.Is(err, driver.ErrNoTicket):
		c.gone(r.Name, r.ID, err.Error(), asked)
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)): // the cause of the end may be any error
	case errors.Is(err, driver.ErrLost) && c.w.slow > 0: // Redlock removes it from its nodes in the background
		c.cleared(r.Hold(0), asked, nodesAsked+3*time.Second)
	case errors.Is(err, driver.ErrNotAcquired), errors.Is(err, driver.ErrLost):
		c.gone(r.Name, r.ID, err.Error(), asked)
		c.cleared(r.Hold(0), asked, 3*time.Second)
	}
	return g, err
}

func isServerOfSQL(m identified) bool {
	switch m.(type) {
	case *database, *innodb:
		return true
	}
	return false
}

func isOneOf(err error, sentinels ...error) bool {
	return slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) })
}

// mayReturn notes that a write has created a queue with tickets: when the store has forgotten the queue, a late write may
// bring back what was in it.
func (w *world) mayReturn(ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		delete(w.departed, id)
	}
}

// joins is what a driver has said of a ticket while it was asked for.
type joins struct {
	said atomic.Bool // that it is queued
	told time.Time   // when the caller knew
}

// joinsOnce is the request, with a check that a driver says once that the ticket is queued.
func (c *contract) joinsOnce(r driver.Request) (driver.Request, *joins) {
	j := new(joins)
	if joined := r.Joined; joined != nil {
		r.Joined = func() {
			if j.said.Swap(true) {
				c.w.fail("%s: a driver has said twice that the ticket %s for %s is queued", c.process, c.w.ticket(r.ID), r.Name)
			}
			c.waits(r)
			joined()
			j.told = time.Now()
		}
	}
	return r, j
}

// lasts checks a lease that was just granted. The core's margin is for clocks that run at other rates. A server that has lost
// something since the grant was asked for may have lost the lease: drivers document that, and the oracles of grants see whether
// it does not where replicas have to acknowledge.
func (c *contract) lasts(r driver.Request, g driver.Grant) {
	if c.m == nil {
		return
	}
	ttl := r.TTL
	if g.TTL > 0 {
		ttl = min(ttl, g.TTL)
	}
	if g.Claim > 0 {
		ttl = g.Claim
	}
	there, until := c.m.lease(r.Name, r.ID, g.Asked)
	n, ok := c.m.(*node)
	if ok && n.group == nil && there && until.IsZero() {
		until = n.keptUntil(r.Name, r.ID)
	}
	if !there || until.IsZero() || ttl < shortTTL {
		return
	}
	margin := ttl / 50
	if ok && n.group != nil { // the nodes add one of their own
		margin = 0
	}
	if early := g.Asked.Add(ttl - margin).Sub(until); early > 10*time.Millisecond {
		c.w.fail("%s: the lease of %s is over %v in the store before its driver says so, which counts %v from %v", c.process, r.Name, early, ttl, g.Asked.Sub(c.w.begun))
	}
}

// acknowledged checks that a replica of Redis, if one has to, has acknowledged something since a grant or a renewal was asked for that
// is confirmed now.
func (c *contract) acknowledged(name string, asked time.Time) {
	n, ok := c.m.(*node)
	if !ok || !n.waits {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.acked.Before(asked) {
		c.w.fail("%s: the lease of %s is confirmed, and no replica has acknowledged it", c.process, name)
	}
}

// Release notes that a ticket is gone.
func (c *contract) Release(ctx context.Context, h driver.Hold) error {
	asked := time.Now()
	if m, ok := c.m.(interface{ signsOf() *signs }); ok {
		m.signsOf().released(h.ID)
	}
	back := c.back(ctx, released)
	err := c.d.Release(ctx, h)
	back(asked, err)
	if err == nil || errors.Is(err, driver.ErrLost) {
		c.gone(h.Name, h.ID, released, asked)
		c.cleared(h, asked, nodesAsked+3*time.Second)
	}
	return err
}

const released = "Release"

// releaseEarly releases a ticket of which it is not known yet whether it is there.
func (c *contract) releaseEarly(ctx context.Context, h driver.Hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = c.Release(ctx, h)
}

// Renew is RenewAll for one.
func (c *contract) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	before, asked := c.mayHold(h), time.Now()
	back := c.back(ctx, "Renew")
	err := c.d.Renew(ctx, h, ttl)
	back(asked, err)
	c.renewed(h, ttl, before, asked, err)
	return err
}

// RenewAll checks that no lease was renewed that had ended.
func (c *contract) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	before, asked := make([]bool, len(rs)), time.Now()
	for i, r := range rs {
		before[i] = c.mayHold(r.Hold)
	}
	back := c.back(ctx, "RenewAll")
	errs := c.d.RenewAll(ctx, rs)
	back(asked, errors.Join(errs...))
	for i, err := range errs {
		c.renewed(rs[i].Hold, rs[i].TTL, before[i], asked, err)
	}
	return errs
}

// Inspect implements driver.Driver.
func (c *contract) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	back := c.back(ctx, "Inspect")
	queue, err := c.d.Inspect(ctx, name)
	back(time.Time{}, err)
	return queue, err
}

func (c *contract) holds(h driver.Hold) bool {
	if c.m == nil {
		return true
	}
	there, until := c.m.lease(h.Name, h.ID, time.Now())
	return there && until.After(time.Now())
}

// mayHold reports whether a ticket holds, or may hold when a request that is sent now arrives: the driver of
// Redis renews a ticket, too, that it has handed the lock before the server grants it.
func (c *contract) mayHold(h driver.Hold) bool {
	if n, ok := c.m.(*node); ok && n.group == nil {
		if there, until := n.lease(h.Name, h.ID, time.Now()); there && until.IsZero() {
			return true
		}
	}
	return c.holds(h)
}

// renewed checks the answer to the renewal of a lease that was there before, or was not.
func (c *contract) renewed(h driver.Hold, ttl time.Duration, before bool, asked time.Time, err error) {
	if err == nil {
		c.acknowledged(h.Name, asked)
	}
	if err == nil && ttl >= shortTTL && !c.trusts && !before && !c.holds(h) {
		c.w.fail("%s: a lease of %s was renewed that is not there, and was not when that was asked for", c.process, h.Name)
	}
}
