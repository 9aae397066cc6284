package conformance

import (
	"context"
	"errors"
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
	newCase("unknown-is-not-lost", "D14 C9",
		"a request that got no answer is neither ErrLost nor ErrNotAcquired", func(e *env) {
			name, d := e.name("unknown"), e.driver()
			h := e.grant(d, e.request(name))
			for _, bound := range []time.Duration{0, time.Microsecond} {
				ctx, cancel := context.WithTimeout(e.ctx, bound)
				defer cancel()
				if err := d.Renew(ctx, h, time.Minute); errors.Is(err, driver.ErrLost) {
					e.failf("a renewal that had no time for an answer: got ErrLost")
				}
				if _, err := d.Inspect(ctx, name); errors.Is(err, driver.ErrLost) {
					e.failf("an Inspect that had no time for an answer: got ErrLost")
				}
			}
			e.untouched(d, h)
			ctx, cancel := context.WithTimeout(e.ctx, 0)
			defer cancel()
			err := d.Release(ctx, h)
			if errors.Is(err, driver.ErrLost) {
				e.failf("a release that had no time for an answer: got ErrLost")
			}
			if err != nil {
				if err := d.Release(e.within(patience), h); err != nil && !errors.Is(err, driver.ErrLost) {
					e.failf("release, asked again: %w", err)
				}
			}
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
		}).needs(NeedLink),
)
