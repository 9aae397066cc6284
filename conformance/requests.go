package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

var errNotJoined = errors.New("the driver has not called Joined")

// request is a request at the driver interface, of a ticket of its own.
func (e *env) request(name string) driver.Request {
	return driver.Request{
		Name: name, ID: e.unique() + "-1", Owner: "conformance", TTL: max(30*time.Second, e.bounds(30*time.Second).MinTTL),
		Wait: true, Renewed: true,
	}
}

// grant acquires at the driver interface what is free.
func (e *env) grant(d driver.Driver, r driver.Request) driver.Hold {
	g, err := d.Acquire(e.within(patience), r)
	e.ok(err, "acquire %q at the driver interface", r.Name)
	return r.Hold(g.Token)
}

// drop releases at the driver interface.
func (e *env) drop(d driver.Driver, h driver.Hold) {
	e.ok(d.Release(e.within(patience), h), "release %q at the driver interface", h.Name)
}

// driverPending is an Acquire of a driver under way.
type driverPending struct {
	e      *env
	r      driver.Request
	cancel context.CancelFunc
	joined atomic.Int64
	done   chan struct{}
	grant  driver.Grant
	err    error
	at     time.Time // when it returned
}

// acquireAt begins to acquire at the driver interface.
func (e *env) acquireAt(d driver.Driver, r driver.Request) *driverPending {
	ctx, cancel := context.WithCancel(e.ctx)
	p := &driverPending{e: e, r: r, cancel: cancel, done: make(chan struct{})}
	e.onHeal(cancel)
	p.r.Joined = func() { p.joined.Add(1) }
	e.group.Go(func() {
		defer close(p.done)
		p.grant, p.err = d.Acquire(ctx, p.r)
		p.at = time.Now()
	})
	return p
}

// queueAt begins to acquire at the driver interface and waits until the queue has n
// tickets.
func (e *env) queueAt(d driver.Driver, r driver.Request, n int) *driverPending {
	p := e.acquireAt(d, r)
	e.awaitQueue(r.Name, n)
	return p
}

// ended waits as long as the bound for Acquire to return.
func (p *driverPending) ended(b bound, after string) error {
	t := time.NewTimer(b.d)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.e.failf("the driver's Acquire of %q had not returned when %s, and %v had passed", p.r.Name, after, b)
	}
	return p.err
}

func provesJoinedIsTold(e *env) {
	name := e.name("joined")
	d1, d2 := e.driver(), e.driver()
	first := e.acquireAt(d1, e.request(name))
	e.ok(first.ended(patient, "it was asked for a free name"), "acquire %q", name)
	second := e.queueAt(d2, e.request(name), 2)
	e.eventually(slacks(2), "waiting for Joined", func() error {
		if second.joined.Load() == 0 {
			return errNotJoined
		}
		return nil
	})
	e.drop(d1, first.r.Hold(first.grant.Token))
	e.ok(second.ended(patient, "the holder released"), "acquire %q", name)
	e.drop(d2, second.r.Hold(second.grant.Token))
	if n := first.joined.Load(); n != 0 {
		e.failf("Joined was called %d times for a ticket that was granted at once", n)
	}
	if n := second.joined.Load(); n != 1 {
		e.failf("Joined was called %d times for a ticket that waited, want once", n)
	}
	e.empty(name)
}
