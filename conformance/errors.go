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
	newCase("text", "D19 C9", provesErrorText,
		"an error names the operation, the lock and the store, and wraps its sentinel"),
	newCase("unknown-is-not-lost", "D14 C9", provesUnknownIsNotLost,
		"a request that got no answer is neither ErrLost nor ErrNotAcquired"),
	newCase("release-cut-off", "D14 D10 C9", provesReleaseCutOff,
		"a release that does not reach the store returns an error within a bound, and the lease ends by itself"),
	newCase("waiter-cut-off", "D7 D14 D16 C9", provesWaiterCutOff,
		"a waiter that is cut off goes on waiting until its context ends, and then returns the reason").needs(NeedLink),
	newCase("driver-cut-off", "D14 D16 D17 C9", provesDriverCutOff,
		"while the driver is cut off from the store, every method returns soon after its context ends, and does not guess the outcome").needs(NeedLink),
	newCase("store-unreachable", "D7 D16 C9", provesStoreUnreachable,
		"Acquire, TryAcquire and Inspect fail within ten seconds while the store cannot be reached").needs(NeedLink),
	newCase("return-in-time", "D16 D14 C9", provesReturnInTime,
		"while the store does not answer, every method of the driver returns within 50 ms after its context ends").needs(NeedLink).at(measuring),
	newCase("why-not-connected", "D16 C9", provesWhyNotConnected,
		"while the store is down, a method whose context ends returns the reason why it could not connect").needs(NeedServer).at(ownStore),
	newCase("no-ticket-is-true", "D9 C9", provesNoTicketIsTrue,
		"an Acquire whose error is marked by NoTicket has left no ticket, and none appears later").needs(NeedLink),
)

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
	e.atMost(time.Since(begun), storeBound+slack, "release while the store cannot be reached")
	e.is(k.Err(), locker.ErrReleased, "the handle after Release")
	next := p.granted(e.crash(ttl), "the holder, cut off, released")
	e.release(next)
}

func provesWaiterCutOff(e *env) {
	name := e.name("cut-off")
	c, link := e.linked()
	k := e.take(e.client(), name)
	p := e.queue(c, name, 2)
	link.Cut()
	e.sleep(4 * slack)
	p.waits("its context lives, and the store may be reachable again")
	p.cancel(errChanged)
	err := p.ended(slacks(3), "it was cancelled")
	e.is(err, context.Canceled, "a waiter that was cut off and then cancelled")
	e.says(err, errChanged, "a waiter that was cut off and then cancelled")
	link.Heal()
	e.awaitQueueWithin(e.removalOfUnanswered(), name, 1)
	e.release(k)
}

func provesStoreUnreachable(e *env) {
	name := e.name("unreachable")
	c, link := e.linked()
	e.release(e.take(c, name))
	link.Cut()
	e.failsSoon([]*locker.Client{c, c, c}, name)
	link.Heal()
	e.worksAgain(c)
	e.awaitQueueWithin(e.crash(e.ttl()).and(e.afterOutage()), name, 0)
}
