package conformance

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockerproject/locker"
)

var cancellation = topic("cancellation",
	newCase("before-acquire", "C8",
		"Acquire under a context that has ended returns the context's error and leaves no ticket, also for a free name", func(e *env) {
			free, held, c := e.name("free"), e.name("held"), e.client()
			k := e.take(e.client(), held)
			ctx, cancel := context.WithCancelCause(e.ctx)
			cancel(errChanged)
			for _, name := range []string{free, held} {
				_, err := c.Acquire(ctx, name)
				e.is(err, context.Canceled, "acquire under a cancelled context")
				e.says(err, errChanged, "acquire under a cancelled context with a cause")
				e.is(errOf(c.TryAcquire(ctx, name)), context.Canceled, "try to acquire under a cancelled context")
			}
			e.release(k)
		}),
	newCase("while-waiting", "D9 D13 C8",
		"a waiter that is cancelled leaves the queue, and the waiters after it move up", func(e *env) {
			name, cs := e.name("waiting"), e.clients(3)
			k := e.take(cs[0], name)
			a := e.queue(cs[1], name, 2)
			b := e.queue(cs[2], name, 3)
			c := e.queue(cs[1], name, 4)
			a.cancel(errChanged)
			e.is(a.ended(slacks(2), "it was cancelled"), context.Canceled, "the cancelled Acquire")
			e.says(a.err, errChanged, "the cancelled Acquire")
			if queue := e.leaves(name, 3); queue[1].Held {
				e.failf("the queue is %s, want the first holding", show(queue))
			}
			e.holds(k, "after a waiter was cancelled")
			e.release(k)
			k = b.granted(patient, "the waiter ahead was cancelled and the holder released")
			c.cancel(nil)
			e.is(c.ended(slacks(2), "it was cancelled"), context.Canceled, "the cancelled Acquire")
			e.leaves(name, 1)
			e.release(k)
		}),
	newCase("writer-leaves", "D9 D13 D4 C8",
		"readers blocked only by a waiting writer are granted as soon as it gives up", func(e *env) {
			name, cs := e.name("writer-leaves"), e.clients(3)
			r1 := e.take(cs[0], name, locker.Shared())
			w := e.queue(cs[1], name, 2)
			r2 := e.queue(cs[2], name, 3, locker.Shared())
			w.cancel(nil)
			_ = w.ended(slacks(2), "it was cancelled")
			begun := time.Now()
			e.release(r2.granted(patient, "the writer before it gave up"))
			e.atMost(r2.at.Sub(begun), slack, "the grant to a reader after the writer had given up")
			e.holds(r1, "beside another reader")
			e.release(r1)
		}),
	newCase("any-moment", "D9 C8",
		"Acquire leaves an empty queue whenever it is cancelled, even at the moment of the grant", func(e *env) {
			name, cs := e.name("moment"), e.clients(3)
			for i := range rounds(24) {
				k := e.take(cs[0], name)
				p := e.acquire(cs[1], name)
				if i%2 == 0 {
					e.awaitQueue(name, 2)
				}
				soon := func() { time.Sleep(e.random.upTo(2 * time.Millisecond)) }
				e.together(func() { soon(); e.release(k) }, func() { soon(); p.cancel(nil) })
				if err := p.ended(slacks(2), "it was cancelled"); err == nil {
					e.release(p.lock)
				} else {
					e.is(err, context.Canceled, "the cancelled Acquire")
				}
				if i%4 == 3 {
					e.empty(name)
				}
			}
		}).keepsBusy(),
	newCase("wait-limit", "D7 C8",
		"WithWait ends the wait with ErrNotAcquired, a deadline with DeadlineExceeded, and neither leaves a ticket; zero does not wait", func(e *env) {
			name, cs := e.name("limit"), e.clients(2)
			k := e.take(cs[0], name)
			const wait = 2 * slack // a busy store may need a part of it for its first answer
			begun := time.Now()
			p := e.acquire(cs[1], name, locker.WithWait(wait))
			late := e.acquireUnder(e.within(wait), cs[1], name)
			e.is(p.ended(slacks(2).plus(wait, "the limit of the call"), "it began"), locker.ErrNotAcquired, "Acquire past its wait limit")
			p.notBefore(begun.Add(wait), "a wait limit of %v", wait)
			e.is(late.ended(slacks(2).plus(wait, "the limit of the call"), "it began"), context.DeadlineExceeded, "Acquire past its deadline")
			e.leaves(name, 1)
			e.holds(k, "after waiters gave up")
			p = e.acquire(cs[1], name, locker.WithWait(0))
			e.is(p.ended(slacks(2), "it began"), locker.ErrNotAcquired, "Acquire that must not wait")
			e.leaves(name, 1)
			e.release(k)
			e.release(e.take(cs[1], name, locker.WithWait(0)))
		}),
	newCase("answer-lost", "D9 D14 C8",
		"an Acquire whose answer was lost, granted or not, leaves no ticket", func(e *env) {
			c, w := e.wired()
			free := e.name("lost")
			w.loseNext(acquireVerb, 1)
			e.is(errOf(c.Acquire(e.within(patience), free)), errAnswerLost, "acquire whose answer was lost")
			e.empty(free)

			w.loseNext(acquireVerb, 1)
			e.is(errOf(c.TryAcquire(e.within(patience), free)), errAnswerLost, "try to acquire, answer lost")
			e.empty(free)

			busy := e.name("lost-waiting")
			k := e.take(e.client(), busy)
			w.loseNext(acquireVerb, 1)
			w.loseNext(releaseVerb, 1)
			p := e.queue(c, busy, 2)
			e.release(k)
			e.is(p.ended(patient, "the holder released"), errAnswerLost, "acquire whose grant was lost")
		}),
	newCase("cut-while-asking", "D9 D14 D16 C8",
		"an Acquire that is cancelled while the store does not answer returns soon, and leaves no ticket once the store answers again", func(e *env) {
			name := e.name("cut")
			c, link := e.linked()
			e.release(e.take(c, name))
			for _, held := range []bool{false, true} {
				var k *locker.Lock
				if held {
					k = e.take(e.client(), name)
				}
				link.DropReplies(true)
				p := e.acquire(c, name)
				e.sleep(50 * time.Millisecond) // let the request reach the store, or not
				p.cancel(errChanged)
				err := p.ended(slacks(3), "it was cancelled")
				if err == nil || errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrNotAcquired) {
					e.failf("Acquire that was cancelled without an answer: got error %v", err)
				}
				link.Heal()
				if held {
					e.release(k)
				}
				e.awaitQueueWithin(e.removalOfUnanswered(), name, 0)
			}
		}),
	newCase("acquisition-only", "D13 C8",
		"the context bounds the acquisition only: the lock outlives it, is still renewed, and Release works with it", func(e *env) {
			name, cs := e.name("outlives"), e.clients(2)
			ctx, cancel := context.WithCancel(e.ctx)
			k, err := cs[0].Acquire(ctx, name, locker.WithTTL(lastingTTL))
			e.ok(err, "acquire")
			p := e.queue(cs[1], name, 2)
			cancel()
			e.sleep(2 * lastingTTL)
			e.holds(k, "two TTLs after the context of its Acquire ended")
			p.waits("the lock is renewed")
			begun := time.Now()
			e.ok(k.Release(ctx), "release under a cancelled context")
			next := p.granted(patient, "the holder released")
			e.atMost(p.at.Sub(begun), lastingTTL/2, "the grant after a release under a cancelled context") // without it the lease has more left
			e.release(next)
		}),
)

var errChanged = errors.New("changed my mind")

// says fails unless an error contains the text of a context's cause. It does not wrap the
// cause, which may be the error of another call.
func (e *env) says(err, cause error, doing string) {
	if err == nil || !strings.Contains(err.Error(), cause.Error()) || errors.Is(err, cause) {
		e.failf("%s: got error %v, want %q in its text, and no more of it", doing, err, cause)
	}
}
