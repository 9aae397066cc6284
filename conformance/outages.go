package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
)

var outages = topic("outage",
	newCase("waiter-stays-queued", "D7 D8 C9",
		"a waiter that is cut off for less than Bounds.Liveness stays queued", func(e *env) {
			name := e.name("position")
			c, link := e.linked()
			k := e.take(e.client(), name)
			w := e.queue(c, name, 2, locker.WithTTL(waiterTTL))
			x := e.queue(e.client(), name, 3, locker.WithTTL(waiterTTL))
			before := e.queueOf(name)
			link.Cut()
			e.sleep(min(e.liveness()/4, 2*time.Second))
			link.Heal()
			e.sleep(slack)
			if after := e.queueOf(name); len(after) != 3 || after[1].Token != before[1].Token {
				e.failf("the queue is %s after a short cut, and was %s", show(after), show(before))
			}
			e.release(k)
			k = w.granted(e.afterOutage(), "the holder released and the way is open again")
			x.waits("the one before it holds")
			e.handOver(k, x)
		}).needs(NeedLink),
	newCase("waiter-queues-again", "D7 D8 C9",
		"a waiter that is cut off for longer queues again at the tail, and the observer is notified", func(e *env) {
			name := e.name("again")
			var rejoined atomic.Int64
			c, link := e.linked(locker.WithObserver(func(_ context.Context, ev locker.Event) {
				if ev.Kind == locker.EventRejoined {
					rejoined.Add(1)
				}
			}))
			k := e.take(e.client(), name)
			w := e.queue(c, name, 2, locker.WithTTL(waiterTTL))
			w.moves = true
			x := e.queue(e.client(), name, 3, locker.WithTTL(waiterTTL))
			first := e.queueOf(name)[1].Token
			link.Cut()
			e.awaitQueueWithin(e.deadWaiters(), name, 2)
			link.Heal()
			e.eventually(e.afterOutage(), "waiting for a waiter to queue again", func() error {
				if queue := e.queueOf(name); len(queue) != 3 || queue[2].Token <= first {
					return errors.New(show(queue))
				}
				return nil
			})
			if rejoined.Load() == 0 {
				e.failf("the observer was not notified that the waiter queued again")
			}
			e.release(k)
			k = x.granted(patient, "the one before it was cut off and the holder released")
			w.waits("it queued again behind the one that holds")
			e.handOver(k, w)
		}).needs(NeedLink),
	newCase("down-at-start", "D7 D16 D19 C9",
		"while the store is down every call fails within ten seconds with the reason, and works again when the store is back", func(e *env) {
			name, cs, s := e.name("down"), e.clients(3), e.server()
			s.kill()
			var fresh *locker.Client
			e.together(func() { e.failsSoon(cs, name) }, func() {
				if d, err := e.h.Open(e.ctx); err == nil { // Open may fail, or the first request
					fresh = e.clientOf(d)
					e.failsSoon([]*locker.Client{fresh, fresh, fresh}, name)
				}
			})
			s.start()
			e.worksAgain(cs...)
			if fresh != nil {
				e.worksAgain(fresh)
			}
		}).needs(NeedServer).at(ownStore),
	newCase("stalled", "D7 D14 D16 C9",
		"while the store is paused every call fails within ten seconds, and leaves no ticket", func(e *env) {
			name, cs, s := e.name("stalled"), e.clients(3), e.server()
			e.release(e.take(e.control(), name))
			s.pause()
			e.failsSoon(cs, name)
			s.resume()
			e.worksAgain(cs...)
			e.awaitQueueWithin(e.crash(e.ttl()).and(e.afterOutage()), name, 0)
		}).needs(NeedServer).at(ownStore),
	newCase("restart-while-held", "D3 D10 D15 C9",
		"a restart shorter than the lease loses no lock", func(e *env) {
			name, cs, s := e.name("held"), e.clients(2), e.server()
			var l ledger
			k := e.take(cs[0], name, locker.WithNote("a note"))
			en := l.granted(k, exclusively)
			s.kill()
			e.sleep(slack / 2)
			s.start()
			e.worksAgain(cs...)
			e.refused(cs[1], name)
			e.holds(k, "after a restart of the store that was shorter than its lease")
			e.ok(k.Extend(e.within(patience), locker.DefaultTTL), "extend after a restart")
			e.oneTicket(k)
			if t := e.awaitQueue(name, 1)[0]; t.Owner != k.Owner() || t.Note != "a note" {
				e.failf("the ticket is %+v after a restart, want owner %q with a note", t, k.Owner())
			}
			p := e.queue(cs[1], name, 2)
			l.ends(en)
			e.release(k)
			l.granted(p.granted(patient, "the holder released"), exclusively)
			e.release(p.lock)
			e.ok(l.check(), "the history over a restart")
		}).needs(NeedServer).at(ownStore),
	newCase("restart-while-waiting", "D7 D8 C9",
		"waiters keep waiting while the store restarts, and are granted afterwards", func(e *env) {
			name, cs, s := e.name("waiting"), e.clients(3), e.server()
			k := e.take(cs[0], name)
			ps := []*pending{e.queue(cs[1], name, 2), e.queue(cs[2], name, 3)}
			before := e.queueOf(name)
			begun := time.Now()
			s.kill()
			e.sleep(min(e.liveness()/4, slack))
			s.start()
			out := time.Since(begun)
			e.worksAgain(cs...)
			for _, p := range ps {
				p.waits("the store was restarted and the lock is held")
			}
			e.holds(k, "after a restart of the store that was shorter than its lease")
			// The last heartbeat was before the outage, and the next one needs a new
			// connection: only a third of the interval is left for the outage.
			short := out < e.bounds(locker.DefaultTTL).Liveness/3
			for _, p := range ps {
				p.moves = !short
			}
			e.eventually(e.afterOutage(), "waiting for the waiters to be queued", func() error {
				queue := e.queueOf(name)
				kept := len(queue) == 3 && queue[1].Token == before[1].Token && queue[2].Token == before[2].Token
				if !kept && (len(queue) != 3 || short) {
					return fmt.Errorf("it was %s and is %s", show(before), show(queue))
				}
				return nil
			})
			e.release(k)
			e.releaseAll(ps...)
		}).needs(NeedServer).at(ownStore),
	newCase("stall-while-held", "D10 D14 C9",
		"a pause of the store shorter than the lease loses no lock; in a longer one the holder knows of its loss by its own clock", func(e *env) {
			short, long, ttl, cs := e.name("short"), e.name("long"), e.lasting(), e.clients(2)
			s := e.server()
			kept := e.take(cs[0], long)
			p := e.queue(cs[1], long, 2)
			ending := e.take(cs[0], short, locker.WithTTL(ttl))
			next := e.queue(cs[1], short, 2)
			p.moves, next.moves = true, true // they are silent for as long as the pause
			s.pause()
			paused := time.Now()
			if !closedWithin(ending.Done(), ttl+slack) {
				e.failf("a holder has not noticed the loss of its lease of %v, %v after the store was paused", ttl, ttl+slack)
			}
			e.sleep(time.Until(paused.Add(ttl + slack)))
			next.waits("the store is paused")
			e.holds(kept, "with a lease longer than the pause")
			s.resume()
			e.release(next.granted(e.crash(ttl).and(e.afterOutage()), "the holder was lost and the store is back"))
			e.worksAgain(cs...)
			e.holds(kept, "after a pause shorter than its lease")
			p.waits("the holder holds")
			e.release(kept)
			e.releaseAll(p)
		}).needs(NeedServer).at(ownStore),
	newCase("close-while-down", "D16 D17 C9",
		"Close returns within a bound while the store is down", func(e *env) {
			held, waited, c, other, s := e.uncheckedName("held"), e.name("waited"), e.client(shortTimeouts()...), e.client(), e.server()
			e.take(c, held, locker.WithTTL(e.ttl()))
			k := e.take(other, waited)
			p := e.queue(c, waited, 2, locker.WithTTL(waiterTTL))
			s.kill()
			begun := time.Now()
			_ = c.Close() // returns that it could not release
			e.atMost(time.Since(begun), 2*storeBound, "Close while the store was down")
			e.is(p.ended(slacks(2), "Close"), locker.ErrClosed, "an Acquire that waited when its Locker was closed")
			s.start()
			e.worksAgain(other)
			e.awaitQueueWithin(e.afterOutage(), waited, 1)
			e.release(k)
		}).needs(NeedServer).at(ownStore).waitsLong(),
)

// worksAgain waits until clients, and the one that observes the queues, work again after an outage.
func (e *env) worksAgain(cs ...*locker.Client) {
	for _, c := range append(cs, e.control()) {
		name := e.uncheckedName("again")
		e.eventually(patient, "acquiring when the store is back", func() error {
			k, err := c.TryAcquire(e.within(patience), name)
			if err == nil {
				e.release(k)
			}
			return err
		})
	}
}

// failsSoon calls every method that sends a request, each on another client.
func (e *env) failsSoon(cs []*locker.Client, name string) {
	ttl := locker.WithTTL(e.ttl()) // of a request that may arrive late, after that for its removal
	calls := []func() error{
		func() error { return errOf(cs[0].Acquire(e.ctx, name, ttl)) },
		func() error { return errOf(cs[1].TryAcquire(e.ctx, name, ttl)) },
		func() error { return errOf(cs[2].Inspect(e.ctx, name)) },
	}
	e.each(len(calls), func(i int) {
		begun := time.Now()
		err := calls[i]()
		e.atMost(time.Since(begun), storeBound+2*slack, "a request during an outage")
		if err == nil || errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrClosed) {
			e.failf("a request during an outage: got error %v", err)
		}
		if !strings.Contains(err.Error(), name) {
			e.failf("error %q does not say which lock", err)
		}
	})
}

// releaseAll waits for the grants of waiters, in any order, and releases each.
func (e *env) releaseAll(ps ...*pending) {
	e.each(len(ps), func(i int) { e.release(ps[i].granted(e.afterOutage(), "the holder released")) })
}
