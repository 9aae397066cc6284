package sim

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// What a driver answers is compared with what its servers have, by the ID of the ticket: the core hides many untrue
// answers, for it looks again, and the clients of other stores than these models of Redis, Redlock and PostgreSQL
// do not show IDs.

// identified is a model that knows tickets by their IDs.
type identified interface {
	// lease returns whether a ticket is there, and until when it holds, by the true time; zero: it waits. Of several servers
	// those count that have it on a majority.
	lease(name, id string) (there bool, until time.Time)
}

// contract is the driver of one process, and checks its answers: D9, D11, D12 and D13 of package driver.
type contract struct {
	w *world
	m identified
	d interface {
		driver.Driver
		driver.BatchRenewer
	}
	process string
}

// departed is a ticket of which a driver has said that it is gone for good.
type departed struct {
	name, process, by string
	at                time.Time
}

// gone notes that a driver has said so.
func (c *contract) gone(name, id, by string) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.departed == nil {
		c.w.departed = make(map[string]departed)
	}
	c.w.departed[id] = departed{name, c.process, by, time.Now()}
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
	g, err := c.d.Acquire(ctx, r)
	switch {
	case err == nil:
		c.lasts(r, g)
	case errors.Is(err, driver.ErrNotAcquired), errors.Is(err, driver.ErrLost), errors.Is(err, driver.ErrNoTicket):
		c.gone(r.Name, r.ID, "Acquire: "+err.Error())
	}
	return g, err
}

// lasts checks a lease that was just granted. The core's margin is for clocks that run at other rates.
func (c *contract) lasts(r driver.Request, g driver.Grant) {
	ttl := r.TTL
	if g.Claim > 0 {
		ttl = g.Claim
	}
	there, until := c.m.lease(r.Name, r.ID)
	if !there || until.IsZero() || ttl < shortTTL {
		return
	}
	if early := g.Asked.Add(ttl - ttl/50).Sub(until); early > 10*time.Millisecond {
		c.w.fail("%s: the lease of %s is over %v in the store before its driver says so, which counts %v from %v", c.process, r.Name, early, ttl, g.Asked.Sub(c.w.begun))
	}
}

// Release notes that a ticket is gone.
func (c *contract) Release(ctx context.Context, h driver.Hold) error {
	err := c.d.Release(ctx, h)
	if err == nil || errors.Is(err, driver.ErrLost) {
		c.gone(h.Name, h.ID, "Release")
	}
	return err
}

// Renew is RenewAll for one.
func (c *contract) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	before := c.holds(h)
	err := c.d.Renew(ctx, h, ttl)
	c.renewed(h, ttl, before, err)
	return err
}

// RenewAll checks that no lease was renewed that had ended.
func (c *contract) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	before := make([]bool, len(rs))
	for i, r := range rs {
		before[i] = c.holds(r.Hold)
	}
	errs := c.d.RenewAll(ctx, rs)
	for i, err := range errs {
		c.renewed(rs[i].Hold, rs[i].TTL, before[i], err)
	}
	return errs
}

func (c *contract) holds(h driver.Hold) bool {
	there, until := c.m.lease(h.Name, h.ID)
	return there && until.After(time.Now())
}

// renewed checks the answer to the renewal of a lease that was there before, or was not.
func (c *contract) renewed(h driver.Hold, ttl time.Duration, before bool, err error) {
	if err == nil && ttl >= shortTTL && !before && !c.holds(h) {
		c.w.fail("%s: a lease of %s was renewed that is not there, and was not when that was asked for", c.process, h.Name)
	}
}

func (d *database) lease(name, id string) (there bool, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tables.tickets[name] {
		if t.id == id {
			there = true
			if t.held {
				until = d.trueTime(t.expires)
			}
		}
	}
	return there, until
}

// trueTime is when the database's clock has that time, in µs.
func (d *database) trueTime(micros int64) time.Time { return trueTime(d.s.w, micros, d.ahead, d.rate) }

// trueTime is when a clock has that time, in µs, which was so far ahead in the beginning, and runs at that rate.
func trueTime(w *world, micros int64, ahead time.Duration, rate float64) time.Time {
	since := time.UnixMicro(micros).Sub(w.begun.Add(ahead))
	return w.begun.Add(time.Duration(float64(since) / rate))
}

func (n *node) lease(name, id string) (there bool, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaseOf(name, id, time.Now())
}

// leaseOf is lease on those nodes alone that have lost nothing since then. With mu held.
func (n *node) leaseOf(name, id string, since time.Time) (there bool, until time.Time) {
	nodes := n.group
	if nodes == nil {
		nodes = []*node{n}
	}
	count, ends := 0, []time.Time(nil)
	for _, one := range nodes {
		if one.lostAt.After(since) {
			continue
		}
		here, end := one.here(name, id)
		if here {
			count++
		}
		if !end.IsZero() {
			ends = append(ends, end)
		}
	}
	quorum := len(nodes)/2 + 1
	if len(ends) >= quorum {
		for range quorum - 1 { // the majority that has it for the longest time
			ends = without(ends, last(ends))
		}
		until = last(ends)
	}
	return count >= quorum, until
}

func last(times []time.Time) (t time.Time) {
	for _, other := range times {
		t = latest(t, other)
	}
	return t
}

func without(times []time.Time, t time.Time) (rest []time.Time) {
	for i, other := range times {
		if other.Equal(t) {
			return append(append(rest, times[:i]...), times[i+1:]...)
		}
	}
	return times
}

// here returns what one server has of a ticket. With mu held.
func (n *node) here(name, id string) (there bool, until time.Time) {
	key := "locker:{" + name + "}"
	live := func(side string) *redisValue {
		if v := n.data[key+side]; v != nil && (v.until == 0 || n.time()/1000 <= v.until) {
			return v
		}
		return nil
	}
	main := live("")
	if main == nil || main.text == nil {
		main = &redisValue{text: new(string)}
	}
	if f := strings.Fields(strings.Replace(*main.text, "?", " ", 1)); len(f) > 2 && f[1] == id {
		return true, trueTime(n.s.w, main.until*1000, n.ahead, n.rate)
	}
	for _, side := range []string{"", "r"} {
		for _, set := range []string{"x", "s"} {
			if v := live(":" + side + set); v != nil {
				if _, ok := v.zset[id]; ok {
					there = true
				}
			}
		}
		if h, e := live(":"+side+"h"), live(":"+side+"e"); h != nil && e != nil && strings.HasSuffix(*main.text, " *") {
			if _, ok := h.zset[id]; ok {
				return true, trueTime(n.s.w, int64(e.zset[id]), n.ahead, n.rate)
			}
		}
	}
	return there, time.Time{}
}
