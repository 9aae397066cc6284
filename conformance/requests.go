package conformance

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// request returns a request for a new ticket at the driver interface.
func (e *env) request(name string) driver.Request {
	return driver.Request{
		Name: name, ID: e.unique() + "-1", Owner: "conformance", TTL: e.leaseOf(30 * time.Second),
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

// handOver is env.handOver at the driver interface.
func (p *driverPending) handOver(from driver.Driver, h driver.Hold, to driver.Driver) {
	p.e.drop(from, h)
	p.e.drop(to, p.granted(patient, "the one before it released"))
}

// driverPending is an Acquire of a driver in the background.
type driverPending struct {
	*background

	r     driver.Request
	grant driver.Grant // what it has returned
}

// acquireAt starts an Acquire at the driver interface.
func (e *env) acquireAt(d driver.Driver, r driver.Request) *driverPending {
	p := &driverPending{r: r}
	p.background = e.inBackground(e.ctx, r.Name, func(ctx context.Context, b *background) (err error) {
		counted := r
		counted.Joined = func() {
			b.joined.Add(1)
			if r.Joined != nil {
				r.Joined()
			}
		}
		p.grant, err = d.Acquire(ctx, counted)
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

// granted waits for the grant, at most as long as the bound.
func (p *driverPending) granted(within bound, after string) driver.Hold {
	p.e.ok(p.ended(within, after), "acquire %q at the driver interface, %s", p.name, after)
	return p.r.Hold(p.grant.Token)
}

// inspectAt returns a queue at the driver interface.
func (e *env) inspectAt(d driver.Driver, name string) []driver.Ticket {
	queue, err := d.Inspect(e.within(patience), name)
	e.ok(err, "inspect %q at the driver interface", name)
	return queue
}
