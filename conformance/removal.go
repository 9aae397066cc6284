package conformance

import (
	"time"

	"github.com/lockerproject/locker"
)

// removal are the cases about the tickets that the core removes in the background.
var removal = topic("removal",
	newCase("unanswered-release", "D13 D14 C8",
		"a lock whose release was not answered is free soon after the store is back, whatever shares its session", func(e *env) {
			ttl := locker.WithTTL(e.leaseOf(15 * time.Second))
			e.eachCut(func(cut func(Link)) {
				first, second := e.name("first"), e.name("second")
				c, link := e.linked(shortTimeouts()...)
				a, b := e.take(c, first, ttl), e.take(c, second, ttl)
				cut(link)
				err := a.Release(e.ctx)
				e.is(err, locker.ErrUnavailable, "release while the store does not answer")
				link.Heal()
				e.freeSoon(first, 0)
				e.holds(b, "beside a lock whose release was not answered")
				e.release(b)
			})
		}).needs(NeedLink),
	newCase("cancelled-wait", "D9 D13 C8",
		"the ticket of a wait that was cancelled in an outage is gone soon after the store is back", func(e *env) {
			e.eachCut(func(cut func(Link)) {
				name, other := e.name("cancelled"), e.name("other")
				c, link := e.linked(shortTimeouts()...)
				k := e.take(e.client(), name)
				b := e.take(c, other)
				w := e.queue(c, name, 2)
				cut(link)
				w.cancel(errChanged)
				e.says(w.ended(slacks(2), "it was cancelled"), errChanged, "a wait that was cancelled in a cut")
				e.sleep(slack + slack/5) // the first request to remove the ticket fails
				link.Heal()
				e.freeSoon(name, 1)
				e.holds(b, "beside a wait that was cancelled")
				e.release(b, k)
			})
		}).needs(NeedLink),
)

// removedWithin is how soon an unwanted ticket is gone after the store is back: in an
// outage the core repeats the release at intervals of less than 1.5 s.
const removedWithin = 2 * time.Second

// shortTimeouts are options with which a client gives up soon, so that cuts can be short.
func shortTimeouts() []locker.ClientOption {
	return []locker.ClientOption{locker.WithReleaseTimeout(time.Second), locker.WithAnswerTimeout(2 * time.Second)}
}

// freeSoon fails unless the queue of name has n tickets soon after the store is back.
func (e *env) freeSoon(name string, n int) {
	begun := time.Now()
	e.awaitQueueWithin(slacks(1).plus(removedWithin, "how soon the core removes a ticket"), name, n)
	e.logf("%q: free %v after the connection was back", name, time.Since(begun).Round(time.Millisecond))
}

// loser is a Link that can also drop everything in both directions until Heal.
type loser interface{ Lose() }

// eachCut runs f with a cut that delays the traffic and, if the Link can, with one
// that drops it.
func (e *env) eachCut(f func(cut func(Link))) {
	f(Link.Cut)
	f(func(l Link) {
		if lossy, ok := l.(loser); ok {
			lossy.Lose()
		} else {
			l.Cut()
		}
	})
}
