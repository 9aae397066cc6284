package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// The times of D16 and D17.
const (
	returnBound = 50 * time.Millisecond
	closeBound  = 100 * time.Millisecond
)

var unanswered = topic("errors",
	newCase("return-in-time", "D14 D16 D17 C9",
		"while the store does not answer, every method of the driver returns within 50 ms after its context ends, and does not guess the outcome", func(e *env) {
			const limit = 250 * time.Millisecond
			ds, sets := make([]driver.Driver, 3), make([][]method, 3)
			e.each(len(sets), func(i int) { ds[i], sets[i] = e.cutOff() })
			e.each(len(sets[0]), func(j int) {
				e.inTime(sets[0][j].name+" after its context has ended", bound{returnBound, "D16"}, func() []time.Duration {
					took := make([]time.Duration, len(sets))
					e.each(len(sets), func(i int) { took[i], _ = e.unanswered(sets[i][j], limit) })
					return took
				})
			})
			e.each(len(ds), func(i int) {
				begun := time.Now()
				_ = ds[i].Close() // may return an error
				e.atMost(time.Since(begun), storeBound, "Close while the store cannot be reached")
			})
			d, link := e.linkedDriver()
			e.inTime("a waiting Acquire after its context has ended", bound{returnBound, "D16"}, func() []time.Duration {
				link.Heal()
				took := make([]time.Duration, 3)
				holder := e.driver()
				ps := make([]*driverPending, len(took))
				e.each(len(ps), func(i int) {
					name := e.uncheckedName("waits")
					e.grant(holder, e.request(name))
					ps[i] = e.queueAt(d, e.request(name), 2)
				})
				link.Cut()
				for i, p := range ps {
					begun := time.Now()
					p.cancel(nil)
					e.is(p.ended(patient, "its context ended"), context.Canceled, "a waiting Acquire")
					took[i] = p.at.Sub(begun)
				}
				return took
			})
		}).needs(NeedLink).at(alone),
	// The driver has time to notice the outage and to try to connect.
	newCase("why-not-connected", "D16 C9",
		"while the store is down, a method whose context ends returns the reason why it could not connect", func(e *env) {
			d := e.driver()
			ms := e.methods(d)
			s := e.server()
			s.kill()
			e.sleep(slack / 2)
			e.each(len(ms), func(i int) {
				_, err := e.unanswered(ms[i], 2*slack)
				if !saysMore(err) && !strings.Contains(err.Error(), "refused") {
					e.failf("%s while the store is down: its error is %q, without the reason why it could not connect (D16)", ms[i].name, err)
				}
			})
			s.start()
		}).needs(NeedServer).at(ownStore),
	// The requests of these Acquires may have been executed, or may still be.
	newCase("no-ticket-is-true", "D9 C9",
		"an Acquire whose error is marked by NoTicket has left no ticket, and none appears later", func(e *env) {
			holder, watcher := e.driver(), e.driver()
			d, link := e.linkedDriver()
			e.drop(d, e.grant(d, e.request(e.name("warm"))))
			for what, fault := range map[string]func(){
				"a wait that was cancelled":            func() {},
				"a request whose replies are lost":     func() { link.DropReplies(true) },
				"a request that is delayed on the way": link.Cut,
			} {
				name := e.uncheckedName("no-ticket")
				h := e.grant(holder, e.request(name))
				fault()
				r := e.request(name)
				ctx, cancel := context.WithTimeout(e.ctx, slack/4)
				_, err := d.Acquire(ctx, r)
				cancel()
				link.Heal()
				if errors.Is(err, driver.ErrNoTicket) {
					e.neverShown(watcher, r, what)
				}
				e.eventually(patient, "releasing a ticket by its ID", func() error {
					if err := d.Release(e.within(slack), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
						return err
					}
					return nil
				})
				e.drop(holder, h)
			}
		}).needs(NeedLink),
)

// method is a call of one method of a driver.
type method struct {
	name string
	call func(ctx context.Context) error
}

// methods returns calls of the methods of d that send requests, each for another
// ticket.
func (e *env) methods(d driver.Driver) []method {
	held := func() driver.Hold { return e.grant(d, e.request(e.uncheckedName("held"))) }
	renewed, batched, released := held(), held(), held()
	try, wait := e.request(e.uncheckedName("try")), e.request(e.uncheckedName("wait"))
	try.Wait = false
	inspected := e.uncheckedName("inspected")
	ms := []method{
		{"Renew", func(ctx context.Context) error { return d.Renew(ctx, renewed, time.Minute) }},
		{"Release", func(ctx context.Context) error { return d.Release(ctx, released) }},
		{"Inspect", func(ctx context.Context) error { return errOf(d.Inspect(ctx, inspected)) }},
		{"Acquire that waits", func(ctx context.Context) error { return errOf(d.Acquire(ctx, wait)) }},
		{"Acquire that does not wait", func(ctx context.Context) error { return errOf(d.Acquire(ctx, try)) }},
	}
	if b, ok := d.(driver.BatchRenewer); ok {
		ms = append(ms, method{"RenewAll", func(ctx context.Context) error {
			return b.RenewAll(ctx, []driver.Renewal{{Hold: batched, TTL: time.Minute}})[0]
		}})
	}
	if l, ok := d.(driver.Lister); ok {
		ms = append(ms, method{"List", func(ctx context.Context) error { return errOf(l.List(ctx)) }})
	}
	if b, ok := d.(driver.Breaker); ok {
		broken := held()
		ms = append(ms, method{"Break", func(ctx context.Context) error { return b.Break(ctx, broken.Name, broken.Token) }})
	}
	if s, ok := d.(driver.Shortener); ok {
		r := e.request(e.uncheckedName("held"))
		r.TTL = 2 * e.leaseOf(time.Minute) // so long that there is something to shorten, whatever the store can give
		shortened := e.grant(d, r)
		ms = append(ms, method{"Shorten", func(ctx context.Context) error { return s.Shorten(ctx, shortened, time.Second) }})
	}
	if p, ok := d.(driver.Pinger); ok {
		ms = append(ms, method{"Ping", p.Ping})
	}
	return ms
}

// unanswered calls a method while the store does not answer. It returns the error,
// and how long after the end of its context the call returned.
func (e *env) unanswered(m method, limit time.Duration) (late time.Duration, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	ended := make(chan error, 1)
	e.group.Go(func() { ended <- m.call(ctx) })
	select {
	case err = <-ended:
		late = time.Since(deadline)
	case <-time.After(limit + patience):
		e.failf("%w", notReturned{m.name})
	}
	if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNotAcquired) {
		e.failf("%s, which the store has not answered: got error %v (D14)", m.name, err)
	}
	return late, err
}

// inTime measures something several times at once. It fails if more than half of the
// measurements are late: a loaded machine delays a few.
func (e *env) inTime(what string, b bound, measure func() []time.Duration) {
	var took []time.Duration
	median := e.measure(b, func() time.Duration {
		took = measure()
		slices.Sort(took)
		return took[len(took)/2]
	})
	if median > b.d {
		e.failf("%s: most took longer than %v: %v", what, b, took)
	}
}

// cutOff opens a driver, cuts it off, and returns it and calls of its methods.
func (e *env) cutOff() (driver.Driver, []method) {
	d, link := e.linkedDriver()
	ms := e.methods(d)
	link.Cut()
	return d, ms
}

// neverShown fails if Inspect shows a ticket that NoTicket says does not exist.
func (e *env) neverShown(d driver.Driver, r driver.Request, what string) {
	for begun := time.Now(); time.Since(begun) < slack/2; e.sleep(slack / 50) {
		queue := e.inspectAt(d, r.Name)
		for _, t := range queue {
			if t.ID == r.ID {
				e.failf("the error of %s is marked by NoTicket, and its ticket is queued: %+v (D9)", what, queue)
			}
		}
	}
}

// saysMore reports whether an error wraps more than the end of its context.
func saysMore(err error) bool {
	switch x := err.(type) { //nolint:errorlint // it walks the tree of errors
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			if saysMore(e) {
				return true
			}
		}
		return false
	case interface{ Unwrap() error }:
		return saysMore(x.Unwrap())
	}
	leaves := []error{nil, context.Canceled, context.DeadlineExceeded, driver.ErrUnavailable, driver.ErrNoTicket}
	return !slices.Contains(leaves, err) && err.Error() != errChanged.Error() // a cause is text
}
