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
	newCase("in-time", "D16 C9", provesAnswersInTime,
		"a call returns within 100 ms of its limit even if the store does not answer").needs(NeedLink),
	newCase("outage-is-not-contention", "D7 D14 C9", provesOutageIsNotContention,
		"a limit that passes before the store has answered is ErrUnavailable, and not ErrNotAcquired").needs(NeedLink),
	newCase("down-is-unavailable", "D14 C9", provesDownIsUnavailable,
		"every call returns ErrUnavailable while the store is down").needs(NeedServer).at(ownStore),
	newCase("ping", "D14 D16 C9", provesPing,
		"Ping reports whether the store answers").needs(NeedLink),
)

// callBound is how long after its limit a call of the core may return.
const callBound = 100 * time.Millisecond

func provesAnswersInTime(e *env) {
	const limit = 500 * time.Millisecond
	name := e.name("in-time")
	c, link := e.linked(shortTimeouts()...)
	k := e.take(e.client(), name)
	e.refused(c, name)
	link.Cut()
	for what, call := range map[string]func(context.Context) error{
		"an Acquire with a wait limit": func(context.Context) error {
			_, err := c.Acquire(e.ctx, name, locker.WithWait(limit))
			return err
		},
		"an Acquire with a deadline":   func(ctx context.Context) error { _, err := c.Acquire(ctx, name); return err },
		"a TryAcquire with a deadline": func(ctx context.Context) error { _, err := c.TryAcquire(ctx, name); return err },
		"an Inspect with a deadline":   func(ctx context.Context) error { _, err := c.Inspect(ctx, name); return err },
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
}

func provesOutageIsNotContention(e *env) {
	name := e.name("outage")
	c, link := e.linked(shortTimeouts()...)
	e.release(e.take(c, name))
	link.Cut()
	_, err := c.Acquire(e.ctx, name, locker.WithWait(300*time.Millisecond))
	e.unavailable(err, "an Acquire whose wait limit passed before the store answered")
	ctx, cancel := context.WithTimeout(e.ctx, 300*time.Millisecond)
	defer cancel()
	_, err = c.Acquire(ctx, name)
	e.unavailable(err, "an Acquire whose context ended before the store answered")
	e.is(err, context.DeadlineExceeded, "an Acquire whose context ended before the store answered")
	_, err = c.TryAcquire(e.ctx, name)
	e.unavailable(err, "a TryAcquire that the store did not answer")
	link.Heal()
	e.worksAgain(c)
	e.freeSoon(name, 0)
}

func (e *env) unavailable(err error, doing string) {
	e.is(err, locker.ErrUnavailable, "%s", doing)
	if errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrLost) {
		e.failf("%s: got error %v, which says that the store has answered", doing, err)
	}
}

func provesDownIsUnavailable(e *env) {
	name := e.name("down")
	c := e.client(shortTimeouts()...)
	k := e.take(c, name, locker.WithTTL(e.leaseOf(15*time.Second)))
	s := e.server()
	s.kill()
	_, err := c.Acquire(e.ctx, e.uncheckedName("other"))
	e.unavailable(err, "acquire on a store that is down")
	_, err = c.TryAcquire(e.ctx, e.uncheckedName("other"))
	e.unavailable(err, "try to acquire on a store that is down")
	_, err = c.Inspect(e.ctx, name)
	e.unavailable(err, "inspect on a store that is down")
	e.unavailable(c.Ping(e.ctx), "ping on a store that is down")
	e.unavailable(k.Extend(e.ctx, time.Minute), "extend on a store that is down")
	e.unavailable(k.Release(e.ctx), "release on a store that is down")
	s.start()
	e.worksAgain(c)
	e.awaitQueueWithin(e.afterOutage(), name, 0)
}

func provesPing(e *env) {
	c, link := e.linked(shortTimeouts()...)
	e.ok(c.Ping(e.within(patience)), "ping")
	link.Cut()
	e.unavailable(c.Ping(e.ctx), "ping while the store does not answer")
	link.Heal()
	e.eventually(patient, "pinging when the connection is back", func() error { return c.Ping(e.within(patience)) })
	e.release(e.takeNow(c, e.name("ping")))
}
