package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

var errNotJoined = errors.New("the driver has not called Joined")

// request returns a request for a new ticket at the driver interface.
func (e *env) request(name string) driver.Request {
	return driver.Request{
		Name: name, ID: e.unique() + "-1", Owner: "conformance", TTL: max(30*time.Second, e.bounds(30*time.Second).MinTTL),
		Wait: true, Renewed: true,
	}
}

// grant acquires a free name at the driver interface.
func (e *env) grant(d driver.Driver, r driver.Request) driver.Hold {
	g, err := d.Acquire(e.within(patience), r)
	e.ok(err, "acquire %q at the driver interface", r.Name)
	return r.Hold(g.Token)
}

// drop releases at the driver interface.
func (e *env) drop(d driver.Driver, h driver.Hold) {
	e.ok(d.Release(e.within(patience), h), "release %q at the driver interface", h.Name)
}

// driverPending is an Acquire of a driver in the background.
type driverPending struct {
	*background

	r      driver.Request
	joined atomic.Int64 // how often Joined was called
	grant  driver.Grant // what it has returned
}

// acquireAt starts an Acquire at the driver interface.
func (e *env) acquireAt(d driver.Driver, r driver.Request) *driverPending {
	p := &driverPending{r: r}
	p.r.Joined = func() {
		p.joined.Add(1)
		if r.Joined != nil {
			r.Joined()
		}
	}
	p.background = e.inBackground(e.ctx, r.Name, func(ctx context.Context) (err error) {
		p.grant, err = d.Acquire(ctx, p.r)
		return err
	}, func(ctx context.Context) {
		if p.grant.Claim > 0 { // as the core does, before a third of it is over
			_ = d.Renew(ctx, p.r.Hold(p.grant.Token), p.r.TTL)
		}
	})
	return p
}

// queueAt starts an Acquire at the driver interface and waits until the queue has
// n tickets.
func (e *env) queueAt(d driver.Driver, r driver.Request, n int) *driverPending {
	p := e.acquireAt(d, r)
	e.awaitQueue(r.Name, n)
	return p
}

// queueAtBehind is queueAt behind one lease that ends by itself. If the machine is
// loaded the lease may end before the ticket has been seen in the queue.
func (e *env) queueAtBehind(d driver.Driver, r driver.Request) *driverPending {
	p := e.acquireAt(d, r)
	e.eventually(patient, "waiting for a ticket in the queue of "+r.Name, func() error {
		if p.returned() {
			return nil
		}
		if queue := e.queueOf(r.Name); len(queue) != 2 {
			return fmt.Errorf("the queue has %d tickets, want 2: %s", len(queue), show(queue))
		}
		return nil
	})
	return p
}

// granted waits for the grant, at most as long as the bound.
func (p *driverPending) granted(within bound, after string) driver.Hold {
	p.e.ok(p.ended(within, after), "acquire %q at the driver interface, %s", p.name, after)
	return p.r.Hold(p.grant.Token)
}

// awaitJoined waits until Joined was called.
func (p *driverPending) awaitJoined(within bound) {
	p.e.eventually(within, "waiting for Joined", func() error {
		if p.joined.Load() == 0 {
			return errNotJoined
		}
		return nil
	})
}

// inspectAt returns a queue at the driver interface.
func (e *env) inspectAt(d driver.Driver, name string) []driver.Ticket {
	queue, err := d.Inspect(e.within(patience), name)
	e.ok(err, "inspect %q at the driver interface", name)
	return queue
}
