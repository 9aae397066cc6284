package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var closing = topic("close",
	newCase("in-time", "D17 C9",
		"Close of a driver without tickets waits no more than 100 ms for a store that does not answer", func(e *env) {
			const n = 3
			allowed := bound{closeBound + returnBound, "100ms: D17 + 50ms: what else Close has to do"}
			e.inTime("Close of a driver without tickets while the store does not answer", allowed, func() []time.Duration {
				took := make([]time.Duration, n)
				e.each(n, func(i int) {
					d, link := e.linkedDriver()
					e.drop(d, e.grant(d, e.request(e.name("closed"))))
					link.Cut()
					begun := time.Now()
					_ = d.Close() // may return an error
					took[i] = time.Since(begun)
				})
				return took
			})
		}).needs(NeedLink).at(alone),
	newCase("releases", "D17 C9",
		"Close releases the locks that are held, and their waiters are granted at once", func(e *env) {
			cs := e.clients(2)
			var ps []*pending
			for range 5 {
				name := e.name("releases")
				e.take(cs[0], name)
				ps = append(ps, e.queue(cs[1], name, 2))
			}
			held := e.take(cs[0], e.name("held"))
			ctx := held.Context(e.ctx)
			begun := time.Now()
			e.ok(cs[0].Close(), "close")
			for _, p := range ps {
				k := p.granted(patient, "the holder closed")
				e.atMost(p.at.Sub(begun), 2*slack, "the hand-off of %q from a holder that closed", p.name)
				e.release(k)
			}
			e.is(context.Cause(ctx), locker.ErrReleased, "the cause of a context after Close")
			e.is(held.Err(), locker.ErrReleased, "Err after Close")
		}),
	newCase("unblocks-waiters", "D17 C9",
		"Close ends waiting Acquires with ErrClosed, and they leave no ticket", func(e *env) {
			name, cs := e.name("unblocks"), e.clients(2)
			k := e.take(cs[0], name)
			ps := []*pending{e.queue(cs[1], name, 2), e.queue(cs[1], name, 3, locker.Shared())}
			e.ok(cs[1].Close(), "close")
			for _, p := range ps {
				e.is(p.ended(slacks(2), "Close"), locker.ErrClosed, "an Acquire that waited when its Locker was closed")
			}
			e.awaitQueueWithin(slacks(1), name, 1)
			e.holds(k, "after a waiting Locker was closed")
			e.release(k)
		}),
	newCase("driver-unblocks", "D17 C9",
		"the driver's own Close ends its waiting Acquires with ErrClosed", func(e *env) {
			name, d1 := e.name("driver"), e.driver()
			h := e.grant(d1, e.request(name))
			var ps []*driverPending
			e.ok(e.steady(closeBound/4, func() error { // Close does not wait longer for the removal of tickets
				d2 := e.open()
				n := len(e.queueOf(name))
				ps = append(ps, e.queueAt(d2, e.request(name), n+1), e.queueAt(d2, e.request(name), n+2))
				return d2.Close()
			}), "close of the driver")
			for _, p := range ps {
				e.is(p.ended(slacks(2), "Close"), driver.ErrClosed, "an Acquire that waited when its driver was closed")
				if err := d1.Release(e.within(patience), p.r.Hold(0)); err != nil {
					e.is(err, driver.ErrLost, "release of what the closed driver may have left")
				}
			}
			e.untouched(d1, h)
			e.drop(d1, h)
		}),
	newCase("twice", "D17 C9",
		"a second Close, of Locker and driver, at once or later, returns nil", func(e *env) {
			name, c := e.name("twice"), e.client()
			e.take(c, name)
			e.each(3, func(int) { e.ok(c.Close(), "one of several Closes at once") })
			e.ok(c.Close(), "another Close")
			d := e.open()
			for range 3 {
				e.ok(d.Close(), "close of the driver")
			}
		}),
	newCase("after", "D17 C9",
		"everything after Close is ErrClosed, and nothing hangs", func(e *env) {
			name, c := e.name("after"), e.client()
			k := e.take(c, name)
			e.ok(c.Close(), "close")
			calls := map[string]func(context.Context) error{
				"acquire":        func(ctx context.Context) error { return errOf(c.Acquire(ctx, name)) },
				"try to acquire": func(ctx context.Context) error { return errOf(c.TryAcquire(ctx, name)) },
				"inspect":        func(ctx context.Context) error { return errOf(c.Inspect(ctx, name)) },
			}
			for what, call := range calls {
				e.is(call(e.within(patience)), locker.ErrClosed, "%s after Close", what)
			}
			e.is(k.Release(e.ctx), locker.ErrReleased, "release after Close")

			d := e.open()
			e.ok(d.Close(), "close of the driver")
			begun := time.Now()
			if g, err := d.Acquire(e.within(patience), e.request(name)); err == nil || errors.Is(err, driver.ErrNotAcquired) {
				e.failf("Acquire of a closed driver: got grant %+v, error %v", g, err)
			}
			if err := d.Renew(e.within(patience), e.request(name).Hold(1), time.Minute); err == nil {
				e.failf("Renew of a closed driver: got no error")
			}
			e.atMost(time.Since(begun), 2*slack, "calls of a closed driver")
		}),
	newCase("others-untouched", "D17 C9",
		"closing one process changes no lock of another", func(e *env) {
			name, shared, cs := e.name("mine"), e.name("ours"), e.clients(3)
			k := e.take(cs[0], name)
			r := e.take(cs[0], shared, locker.Shared())
			e.take(cs[1], shared, locker.Shared())
			w := e.queue(cs[2], name, 2) // it does not queue again
			e.ok(cs[1].Close(), "close of another")
			e.oneTicket(r)
			e.holds(k, "after another process closed")
			w.waits("the holder holds")
			e.refused(cs[2], shared)
			e.release(k)
			e.handOver(r, w)
		}),
)
