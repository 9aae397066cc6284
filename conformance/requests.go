package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// joins are the cases about Joined. They belong to the topic fairness.
var joins = []Case{
	{
		Topic: "fairness", Name: "joined-called-once", Rules: []string{"D7", "C2"},
		Explain: "Joined is called once for a ticket that has to wait, and not for one that is granted at once",
		prove:   provesJoinedOnce,
	},
	{
		Topic: "fairness", Name: "joined-may-call", Rules: []string{"D7", "C2"},
		Explain: "observers may use the Locker while they are notified: Joined may call the driver",
		prove:   provesJoinedMayCall,
	},
	{
		Topic: "fairness", Name: "joined-may-take-long", Rules: []string{"D7", "D8", "C2"}, long: true,
		Explain: "a ticket stays queued although Joined takes longer than Bounds.Liveness, as a slow observer may",
		prove:   provesJoinedMayTakeLong,
	},
}

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

// driverPending is an Acquire of a driver that has not returned.
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

// acquireAt starts an Acquire at the driver interface.
func (e *env) acquireAt(d driver.Driver, r driver.Request) *driverPending {
	ctx, cancel := context.WithCancel(e.ctx)
	p := &driverPending{e: e, r: r, cancel: cancel, done: make(chan struct{})}
	e.onHeal(cancel)
	p.r.Joined = func() {
		p.joined.Add(1)
		if r.Joined != nil {
			r.Joined()
		}
	}
	e.group.Go(func() {
		defer close(p.done)
		p.grant, p.err = d.Acquire(ctx, p.r)
		p.at = time.Now()
		if p.err == nil && p.grant.Claim > 0 { // as the core does, before a third of it is over
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
		select {
		case <-p.done:
			return nil
		default:
		}
		if queue := e.queueOf(r.Name); len(queue) != 2 {
			return fmt.Errorf("the queue has %d tickets, want 2: %s", len(queue), show(queue))
		}
		return nil
	})
	return p
}

// ended waits until Acquire returns, at most as long as the bound.
func (p *driverPending) ended(b bound, after string) error {
	if !closedWithin(p.done, b.d) {
		p.e.failf("the driver's Acquire of %q had not returned when %s, and %v had passed", p.r.Name, after, b)
	}
	return p.err
}

func provesJoinedOnce(e *env) {
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

// provesJoinedMayCall calls the driver inside Joined, as an observer may.
func provesJoinedMayCall(e *env) {
	name := e.name("joined-calls")
	d1, d2 := e.driver(), e.driver()
	h := e.grant(d1, e.request(name))
	r, inside := e.request(name), e.request(e.name("inside"))
	called := make(chan error, 1)
	r.Joined = func() {
		ctx := e.within(patience)
		_, inspected := d2.Inspect(ctx, name)
		g, err := d2.Acquire(ctx, inside)
		if err == nil {
			err = errors.Join(d2.Renew(ctx, inside.Hold(g.Token), inside.TTL), d2.Release(ctx, inside.Hold(g.Token)))
		}
		called <- errors.Join(inspected, err)
	}
	p := e.queueAt(d2, r, 2)
	select {
	case err := <-called:
		e.ok(err, "a call of the driver inside Joined: Acquire must hold no lock meanwhile (D7)")
	case <-e.within(2 * patience).Done():
		e.failf("calls of the driver inside Joined have not returned: Acquire must hold no lock meanwhile (D7)")
	}
	e.drop(d1, h)
	e.ok(p.ended(patient, "the holder released"), "acquire %q", name)
	e.drop(d2, p.r.Hold(p.grant.Token))
	e.empty(name)
}

func provesJoinedMayTakeLong(e *env) {
	name := e.name("joined-long")
	d1, d2 := e.driver(), e.driver()
	h := e.grant(d1, e.request(name))
	r, joined := e.request(name), make(chan struct{})
	end := sync.OnceFunc(func() { close(joined) })
	e.onHeal(end)
	r.TTL, r.Joined = max(waiterTTL, e.bounds(waiterTTL).MinTTL), func() { <-joined }
	p := e.queueAt(d2, r, 2)
	takes := e.heartbeats()
	e.sleep(takes)
	queue, err := d1.Inspect(e.within(patience), name)
	e.ok(err, "inspect %q", name)
	if len(queue) != 2 || queue[1].ID != r.ID {
		e.failf("the queue is %+v when Joined has taken %v, want ticket %s second: Acquire keeps it alive meanwhile (D7)", queue, takes, r.ID)
	}
	end()
	e.drop(d1, h)
	e.ok(p.ended(patient, "the holder released"), "acquire %q", name)
	e.drop(d2, p.r.Hold(p.grant.Token))
	e.empty(name)
}
