package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker"
)

// timeLimits are the cases about answers in time, and about outages that must not be
// mistaken for contention.
var timeLimits = topic("limits",
	newCase("in-time", "D16 C9",
		"a call returns within 100 ms of its limit even if the store does not answer", func(e *env) {
			const limit = 500 * time.Millisecond
			name := e.name("in-time")
			c, link := e.linked(shortTimeouts()...)
			k := e.take(e.client(), name)
			e.refused(c, name)
			link.Cut()
			for what, call := range map[string]func(context.Context) error{
				"an Acquire with a wait limit": func(context.Context) error { return errOf(c.Acquire(e.ctx, name, locker.WithWait(limit))) },
				"an Acquire with a deadline":   func(ctx context.Context) error { return errOf(c.Acquire(ctx, name)) },
				"a TryAcquire with a deadline": func(ctx context.Context) error { return errOf(c.TryAcquire(ctx, name)) },
				"an Inspect with a deadline":   func(ctx context.Context) error { return errOf(c.Inspect(ctx, name)) },
			} {
				over := e.measure(bound{callBound, "C9"}, func() time.Duration {
					late, _ := e.unanswered(method{what, call}, limit)
					return late
				})
				if over > callBound {
					e.failf("%s of %v returned %v after that; want at most %v (D16: the driver returns within 50 ms)", what, limit, over, callBound)
				}
			}
			link.Heal()
			e.worksAgain(c)
			e.awaitQueueWithin(e.afterOutage(), name, 1)
			e.release(k)
		}).needs(NeedLink),
	newCase("outage-is-not-contention", "D7 D14 D16 C9",
		"a limit that passes before the store has answered is ErrUnavailable, and not ErrNotAcquired; Ping reports whether the store answers", func(e *env) {
			name := e.name("outage")
			c, link := e.linked(shortTimeouts()...)
			e.release(e.take(c, name))
			e.ok(c.Ping(e.within(patience)), "ping")
			link.Cut()
			e.unavailable(errOf(c.Acquire(e.ctx, name, locker.WithWait(300*time.Millisecond))), "an Acquire whose wait limit passed before the store answered")
			ctx, cancel := context.WithTimeout(e.ctx, 300*time.Millisecond)
			defer cancel()
			_, err := c.Acquire(ctx, name)
			e.unavailable(err, "an Acquire whose context ended before the store answered")
			e.is(err, context.DeadlineExceeded, "an Acquire whose context ended before the store answered")
			e.unavailable(errOf(c.TryAcquire(e.ctx, name)), "a TryAcquire that the store did not answer")
			e.unavailable(c.Ping(e.ctx), "ping while the store does not answer")
			link.Heal()
			e.worksAgain(c)
			e.ok(c.Ping(e.within(patience)), "ping when the connection is back")
			e.freeSoon(name, 0)
		}).needs(NeedLink),
	newCase("down-is-unavailable", "D14 C9",
		"every call returns ErrUnavailable while the store is down", func(e *env) {
			name := e.name("down")
			c := e.client(shortTimeouts()...)
			k := e.take(c, name, locker.WithTTL(e.leaseOf(15*time.Second)))
			s := e.server()
			s.kill()
			e.unavailable(errOf(c.Acquire(e.ctx, e.uncheckedName("other"))), "acquire on a store that is down")
			e.unavailable(errOf(c.TryAcquire(e.ctx, e.uncheckedName("other"))), "try to acquire on a store that is down")
			e.unavailable(errOf(c.Inspect(e.ctx, name)), "inspect on a store that is down")
			e.unavailable(c.Ping(e.ctx), "ping on a store that is down")
			e.unavailable(k.Extend(e.ctx, time.Minute), "extend on a store that is down")
			e.releaseFails(k, "the store is down")
			s.start()
			e.worksAgain(c)
			e.awaitQueueWithin(e.afterOutage(), name, 0)
		}).needs(NeedServer).at(ownStore),
)

// callBound is how long after its limit a call of the core may return.
const callBound = 100 * time.Millisecond

func (e *env) unavailable(err error, doing string) {
	e.is(err, locker.ErrUnavailable, "%s", doing)
	if errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrLost) {
		e.failf("%s: got error %v, which says that the store has answered", doing, err)
	}
}
