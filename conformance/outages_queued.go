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
	newCase("cut-while-queued", "D7 D9 D14 D15 D16 C9",
		"a wait goes on while its client is cut off, ends with ErrUnavailable beside its own error, whatever has ended it, and leaves no ticket; so fails each renewal", func(e *env) {
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
			e.endsAreUnavailable(c, "cut off", link.Cut, func() {
				if failed.Load() == 0 || silent.Load() < failed.Load() {
					e.failf("%d of %d failed renewals of a client that was cut off were reported as ErrUnavailable", silent.Load(), failed.Load())
				}
				link.Heal()
			})
			e.awaitQueueWithin(e.crash(e.lasting()).and(e.afterOutage()), other, 0)
		}).needs(NeedLink),
	newCase("down-while-queued", "D7 D9 D14 D15 C9",
		"a wait goes on while the store is down or silent, ends with ErrUnavailable beside its own error, whatever has ended it, and leaves no ticket", func(e *env) {
			c, s := e.client(), e.server()
			e.endsAreUnavailable(c, "down", s.kill, s.start)
			e.endsAreUnavailable(c, "silent", s.pause, s.resume)
		}).needs(NeedServer).at(ownStore).waitsLong(),
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
		t := time.AfterFunc(queuedWait, func() { p.cancel(errChanged) })
		e.onHeal(func() { t.Stop() })
		return p
	}},
}

// endsAreUnavailable queues one waiter for each way in which a wait may end, lets an
// outage begin, and checks that each waits until then, that its error says that the store is
// away, and that no ticket is left after the outage.
func (e *env) endsAreUnavailable(c *locker.Client, outage string, begin, end func()) {
	name := e.name("queued")
	k := e.take(e.control(), name, locker.WithTTL(e.lasting()))
	begun := time.Now()
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
		p.notBefore(begun.Add(queuedWait), "%s", doing)
		e.is(err, waitEnds[i].is, "%s", doing)
		e.is(err, locker.ErrUnavailable, "%s", doing)
		if errors.Is(err, locker.ErrLost) {
			e.failf("%s: got error %v: it never held the lock", doing, err)
		}
		if errors.Is(err, context.Canceled) {
			e.says(err, errChanged, doing)
		}
	}
	end()
	e.worksAgain(c)
	_ = k.Release(e.within(patience)) // it may be lost by now
	e.awaitQueueWithin(e.crash(e.lasting()).and(e.afterOutage()), name, 0)
}
