package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var failures = topic("errors",
	newCase("text", "D19 C9",
		"an error names the operation, the lock and the store, and wraps its sentinel", func(e *env) {
			name, cs := e.name("error text"), e.clients(2)
			k := e.take(cs[0], name)
			_, refused := cs[1].TryAcquire(e.ctx, name)
			e.ok(cs[0].Close(), "close")
			_, closed := cs[0].Acquire(e.ctx, name)
			again := k.Release(e.ctx)
			for _, c := range []struct {
				err, is error
				op      string
			}{
				{refused, locker.ErrNotAcquired, "acquire"},
				{closed, locker.ErrClosed, "acquire"},
				{again, locker.ErrReleased, "release"},
			} {
				e.is(c.err, c.is, "an error")
				var said *locker.Error
				if !errors.As(c.err, &said) {
					e.failf("error %v is no *locker.Error", c.err)
				}
				if said.Name != name || !strings.Contains(said.Op, c.op) || said.Store == "" {
					e.failf("error %v names lock %q, verb %q, store %q", c.err, said.Name, said.Op, said.Store)
				}
				if !strings.Contains(c.err.Error(), name) {
					e.failf("error %q does not say which lock", c.err)
				}
			}
		}),
	newCase("unknown-is-not-lost", "D7 D14 D16 C9",
		"a request whose context ends before its answer is neither ErrLost nor ErrNotAcquired, and returns soon; a wait that is cancelled returns the context's cause, and not that the store is away", func(e *env) {
			d, holder := e.driver(), e.driver()
			for _, limit := range []time.Duration{0, time.Microsecond} {
				for _, m := range e.methods(d) {
					ctx, cancel := context.WithTimeout(e.ctx, limit)
					begun := time.Now()
					err := m.call(ctx)
					cancel()
					e.atMost(time.Since(begun), 2*slack, "%s, which had no time for an answer,", m.name)
					if errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNotAcquired) {
						e.failf("%s, which had no time for an answer: got error %v, which is not known (D14)", m.name, err)
					}
				}
			}
			name := e.name("unknown")
			h := e.grant(holder, e.request(name))
			e.ok(e.steady(returnBound, func() error { // else a heartbeat may have had no answer
				p := e.queueAt(d, e.request(name), 2)
				p.cancel(errChanged)
				err := p.ended(slacks(2), "its context ended")
				_ = d.Release(e.within(patience), p.r.Hold(0))
				switch {
				case !errors.Is(err, errChanged):
					return fmt.Errorf("got error %w, which does not wrap the cause of the context (D7)", err)
				case errors.Is(err, driver.ErrLost), errors.Is(err, driver.ErrNotAcquired):
					return fmt.Errorf("got error %w, which is not known (D14)", err)
				case errors.Is(err, driver.ErrUnavailable):
					return fmt.Errorf("got error %w, which is marked as ErrUnavailable: the store answers (D14)", err)
				}
				return nil
			}), "a wait that was cancelled")
			e.untouched(holder, h)
			e.drop(holder, h)
		}),
	newCase("store-unreachable", "D7 D16 C9",
		"Acquire, TryAcquire and Inspect fail within ten seconds while the store cannot be reached", func(e *env) {
			name := e.name("unreachable")
			c, link := e.linked()
			e.release(e.take(c, name))
			link.Cut()
			e.failsSoon([]*locker.Client{c, c, c}, name)
			link.Heal()
			e.worksAgain(c)
			e.awaitQueueWithin(e.crash(e.ttl()).and(e.afterOutage()), name, 0)
		}).needs(NeedLink).waitsLong(),
)
