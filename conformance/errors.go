package conformance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var failures = []Case{
	{
		Topic: "errors", Name: "text", Rules: []string{"D19", "C9"},
		Explain: "an error names the operation, the lock and the store, and wraps its sentinel",
		prove:   provesErrorText,
	},
	{
		Topic: "errors", Name: "unknown-is-not-lost", Rules: []string{"D14", "C9"},
		Explain: "a request that got no answer is neither ErrLost nor ErrNotAcquired",
		prove:   provesUnknownIsNotLost,
	},
	{
		Topic: "errors", Name: "release-cut-off", Rules: []string{"D14", "D10", "C9"},
		Explain: "a release that does not reach the store returns an error within a bound, and the lease ends by itself",
		prove:   provesReleaseCutOff,
	},
	{
		Topic: "errors", Name: "waiter-cut-off", Rules: []string{"D7", "D14", "D16", "C9"}, Needs: NeedLink,
		Explain: "a waiter that is cut off goes on waiting until its context ends, and then returns the reason",
		prove:   provesWaiterCutOff,
	},
	{
		Topic: "errors", Name: "driver-cut-off", Rules: []string{"D14", "D16", "D17", "C9"}, Needs: NeedLink,
		Explain: "while the driver is cut off from the store, every method returns soon after its context ends, and does not guess the outcome",
		prove:   provesDriverCutOff,
	},
	{
		Topic: "errors", Name: "store-unreachable", Rules: []string{"D7", "D16", "C9"}, Needs: NeedLink, long: true,
		Explain: "Acquire, TryAcquire and Inspect fail within ten seconds while the store cannot be reached",
		prove:   provesStoreUnreachable,
	},
}

func provesErrorText(e *env) {
	name := e.name("error text")
	cs := e.clients(2)
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
}

func provesUnknownIsNotLost(e *env) {
	name := e.name("unknown")
	d := e.driver()
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
	e.empty(name)
}

func provesReleaseCutOff(e *env) {
	name := e.name("cut-off")
	ttl := e.lasting()
	c, link := e.linked()
	k := e.take(c, name, locker.WithTTL(ttl))
	p := e.queue(e.client(), name, 2)
	link.Cut()
	begun := time.Now()
	err := k.Release(e.ctx)
	if err == nil || errors.Is(err, locker.ErrReleased) {
		e.failf("release of %q while the store cannot be reached: got error %v", name, err)
	}
	if took := time.Since(begun); took > storeBound+slack {
		e.failf("release while the store cannot be reached took %v", took)
	}
	e.is(k.Err(), locker.ErrReleased, "the handle after Release")
	next := p.granted(e.crash(ttl), "the holder, cut off, released")
	e.release(next)
	e.empty(name)
}

func provesWaiterCutOff(e *env) {
	name := e.name("cut-off")
	var notified atomic.Bool
	c, link := e.linked(locker.WithObserver(func(context.Context, locker.Event) { notified.Store(true) }))
	k := e.take(e.client(), name)
	p := e.queue(c, name, 2)
	e.eventually(patient, "waiting until the client knows that it waits", func() error {
		if !notified.Load() {
			return errNotJoined
		}
		return nil
	})
	link.Cut()
	e.sleep(4 * slack)
	p.waits("its context lives, and the store may be reachable again")
	p.cancel(errChanged)
	err := p.ended(slacks(3), "it was cancelled")
	e.is(err, context.Canceled, "a waiter that was cut off and then cancelled")
	e.says(err, errChanged, "a waiter that was cut off and then cancelled")
	link.Heal()
	e.awaitQueueWithin(e.orphan(), name, 1)
	e.release(k)
	e.empty(name)
}

func provesStoreUnreachable(e *env) {
	name := e.name("unreachable")
	c, link := e.linked()
	e.release(e.take(c, name))
	ttl := e.ttl() // of a request that may arrive late, after that for its removal
	link.Cut()
	e.each(3, func(i int) {
		var err error
		begun := time.Now()
		switch i {
		case 0:
			_, err = c.Acquire(e.ctx, name, locker.WithTTL(ttl))
		case 1:
			_, err = c.TryAcquire(e.ctx, name, locker.WithTTL(ttl))
		case 2:
			_, err = c.Inspect(e.ctx, name)
		}
		if err == nil || errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrLost) {
			e.failf("asking a store that cannot be reached: got error %v", err)
		}
		if took := time.Since(begun); took > storeBound+2*slack {
			e.failf("asking a store that cannot be reached took %v, want at most %v", took, storeBound)
		}
	})
	link.Heal()
	e.worksAgain(c)
	e.awaitQueueWithin(e.crash(ttl).and(e.outlives()), name, 0)
	e.empty(name)
}

func provesDriverCutOff(e *env) {
	name := e.name("driver-cut-off")
	d, link, err := e.h.OpenLink(e.ctx)
	e.ok(err, "open with a link")
	e.onClose(func() { _ = d.Close() })
	e.onHeal(link.Heal)
	h := e.grant(d, e.request(name))
	try := e.request(name)
	try.Wait = false
	link.Cut()
	calls := map[string]func(ctx context.Context) error{
		"Acquire":                 func(ctx context.Context) error { _, err := d.Acquire(ctx, e.request(name)); return err },
		"Acquire without waiting": func(ctx context.Context) error { _, err := d.Acquire(ctx, try); return err },
		"Renew":                   func(ctx context.Context) error { return d.Renew(ctx, h, time.Minute) },
		"Inspect":                 func(ctx context.Context) error { _, err := d.Inspect(ctx, name); return err },
		"Release":                 func(ctx context.Context) error { return d.Release(ctx, h) },
	}
	verbs := slices.Sorted(maps.Keys(calls))
	const bound = slack / 2
	e.each(len(verbs), func(i int) {
		ctx, cancel := context.WithTimeout(e.ctx, bound)
		defer cancel()
		begun := time.Now()
		err := calls[verbs[i]](ctx)
		if took := time.Since(begun); took > bound+2*slack {
			e.failf("%s took %v without an answer, and its context %v", verbs[i], took, bound)
		}
		if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNotAcquired) {
			e.failf("%s, which got no answer: got error %v", verbs[i], err)
		}
	})
	begun := time.Now()
	_ = d.Close() // may return an error
	if took := time.Since(begun); took > storeBound {
		e.failf("Close while the store cannot be reached took %v", took)
	}
}
