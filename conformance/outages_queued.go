package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
)

// queuedWait is how long a wait lasts in which an outage begins, half a second after the
// ticket was queued: a silent store counts as away two seconds later.
const queuedWait = 5 * time.Second

var endedWaits = topic("outage",
	newCase("cut-while-queued", "D7 D14 D15 C9",
		"a wait that ends while its client is cut off is ErrUnavailable beside its own error, whatever has ended it; so is each failed renewal", func(e *env) {
			var failed, silent atomic.Int64
			c, link := e.linked(locker.WithObserver(func(_ context.Context, ev locker.Event) {
				if ev.Kind != locker.EventRenewFailed {
					return
				}
				failed.Add(1)
				if errors.Is(ev.Err, locker.ErrUnavailable) {
					silent.Add(1)
				}
			}))
			other := e.name("held")
			e.take(c, other, locker.WithTTL(e.lasting()))
			e.endsAreUnavailable(c, link.Cut, "cut off")
			if failed.Load() == 0 || silent.Load() < failed.Load() {
				e.failf("%d of %d failed renewals of a client that was cut off were reported as ErrUnavailable", silent.Load(), failed.Load())
			}
			link.Heal()
			e.worksAgain(c)
			e.awaitQueueWithin(e.crash(e.lasting()).and(e.afterOutage()), other, 0)
		}).needs(NeedLink),
	newCase("down-while-queued", "D7 D14 D15 C9",
		"a wait that ends while the store is down or silent is ErrUnavailable beside its own error, whatever has ended it", func(e *env) {
			c, s := e.client(), e.server()
			e.endsAreUnavailable(c, s.kill, "down")
			s.start()
			e.worksAgain(c)
			e.endsAreUnavailable(c, s.pause, "silent")
			s.resume()
			e.worksAgain(c)
		}).needs(NeedServer).at(ownStore),
)

// A waitEnd is one way in which a wait ends without a grant.
type waitEnd struct {
	how   string
	is    error // what the error has to wrap
	begin func(e *env, l locker.Locker, name string) *pending
}

var waitEnds = []waitEnd{
	{"at its limit", locker.ErrNotAcquired, func(e *env, l locker.Locker, name string) *pending {
		return e.acquire(l, name, locker.WithWait(queuedWait))
	}},
	{"at its deadline", context.DeadlineExceeded, func(e *env, l locker.Locker, name string) *pending {
		return e.acquireUnder(e.within(queuedWait), l, name)
	}},
	{"when it was cancelled", context.Canceled, func(e *env, l locker.Locker, name string) *pending {
		p := e.acquire(l, name)
		t := time.AfterFunc(queuedWait, func() { p.cancel(nil) })
		e.onHeal(func() { t.Stop() })
		return p
	}},
}

// endsAreUnavailable queues one waiter for each way in which a wait may end, begins an
// outage, and checks that each error says that the store is away.
func (e *env) endsAreUnavailable(c *locker.Client, begin func(), outage string) {
	name := e.uncheckedName("queued")
	k := e.take(e.control(), name, locker.WithTTL(e.lasting()))
	var ps []*pending
	for _, end := range waitEnds {
		p := end.begin(e, c, name)
		p.awaitJoined(patient)
		ps = append(ps, p)
	}
	e.sleep(500 * time.Millisecond)
	begin()
	for i, p := range ps {
		doing := "a wait that ended " + waitEnds[i].how + " while the store was " + outage
		err := p.ended(slacks(3).plus(queuedWait, "the wait"), "its time was over")
		e.is(err, waitEnds[i].is, "%s", doing)
		e.is(err, locker.ErrUnavailable, "%s", doing)
		if errors.Is(err, locker.ErrLost) {
			e.failf("%s: got error %v: it never held the lock", doing, err)
		}
	}
	e.onHeal(func() { _ = k.Release(e.ctx) }) // it may be lost by now
}
