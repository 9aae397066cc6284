package conformance

import (
	"context"
	"time"

	"github.com/lockerproject/locker"
)

var reentry = topic("reentry",
	newCase("by-owner", "D1 C5",
		"the same explicit owner on the same Locker re-enters; others, and the same owner text in another process, do not", func(e *env) {
			name, cs := e.name("owner"), e.clients(2)
			outer := e.take(cs[0], name, locker.WithOwner("alice"))
			inner := e.reenters(e.ctx, cs[0], outer, locker.WithOwner("alice"))
			try, err := cs[0].TryAcquire(e.within(patience), name, locker.WithOwner("alice"))
			e.ok(err, "re-enter with TryAcquire")
			e.refused(cs[0], name, locker.WithOwner("bob"))
			e.refused(cs[0], name)
			e.refused(cs[1], name, locker.WithOwner("carol"))
			e.refused(cs[1], name, locker.WithOwner("alice"))
			e.oneTicket(outer)
			e.release(outer, try)
			e.oneTicket(inner)
			e.refused(cs[1], name)
			p := e.queue(cs[1], name, 2, locker.WithOwner("alice"))
			e.release(inner)
			next := p.granted(patient, "the holder released")
			e.grows(inner.Token(), next.Token())
			e.release(next)
		}),
	newCase("any-order", "D13 C4 C5",
		"Acquire under the lock's context re-enters at once, with the same token, before all waiters, also as a reader; handles are released in any order, each once, and the ticket with the last", func(e *env) {
			name, cs := e.name("order"), e.clients(2)
			outer := e.take(cs[0], name)
			e.refused(cs[0], name) // outside the context it is somebody else
			p := e.queue(cs[1], name, 2)
			ctx := outer.Context(e.ctx)
			inner := []*locker.Lock{e.reenters(ctx, cs[0], outer, locker.Shared()), e.reenters(ctx, cs[0], outer)}
			inner = append(inner, e.reenters(inner[0].Context(e.ctx), cs[0], outer))
			if queue := e.awaitQueue(name, 2); queue[0].Token != outer.Token() {
				e.failf("the queue is %s, want ticket %d first", show(queue), outer.Token())
			}
			e.release(inner[1])
			p.waits("the outer handle is held")
			e.holds(outer, "after an inner handle was released")
			e.release(outer)
			if cause := context.Cause(ctx); cause != locker.ErrReleased { //nolint:errorlint // the very cause
				e.failf("the cause of the outer handle's context is %v, want ErrReleased", cause)
			}
			e.release(inner[2])
			p.waits("one handle is held")
			over := func(handles ...*locker.Lock) {
				for _, k := range handles {
					e.is(k.Release(e.ctx), locker.ErrReleased, "second release of a handle")
					e.is(k.Extend(e.within(patience), time.Minute), locker.ErrReleased, "extending after release")
					e.is(k.Err(), locker.ErrReleased, "Err after release")
				}
			}
			over(outer, inner[1], inner[2])
			p.waits("one handle is held")
			e.refused(cs[1], name, locker.Shared()) // the last handle is a reader's, on a writer's ticket
			e.holds(inner[0], "the last handle")
			e.release(inner[0])
			next := p.granted(patient, "the last handle was released")
			over(inner[0])
			e.holds(next, "after a second release of the lock before it")
			e.refused(cs[0], name)
			e.release(next)
		}),
	newCase("lengthens", "D12 C5",
		"re-entry with a longer TTL lengthens the lease in the store; with a shorter one it changes nothing", func(e *env) {
			cs, ttl, before := e.clients(2), e.lasting(), time.Now()
			k := e.take(cs[0], e.name("lengthens"), locker.WithTTL(ttl), locker.WithoutRenewal())
			fixedLease(e, cs[1], k, before, ttl, func(ttl time.Duration) {
				e.reenters(k.Context(e.ctx), cs[0], k, locker.WithTTL(ttl), locker.WithoutRenewal())
			})
		}),
	newCase("not-after-loss", "D10 C5",
		"a lost lock is not re-entered: its owner queues again and gets a new token", func(e *env) {
			name, ttl, cs := e.name("after-loss"), e.ttl(), e.clients(2)
			owner := locker.WithOwner("alice")
			outer := e.take(cs[0], name, owner, locker.WithTTL(ttl), locker.WithoutRenewal())
			ctx := outer.Context(e.ctx)
			next := e.queueBehind(cs[1], name).granted(e.leaseEnd(ttl), "the lease was granted")

			_, err := cs[0].Acquire(ctx, name)
			e.is(err, context.Canceled, "acquire under the context of a lost lock")
			e.says(err, locker.ErrLost, "acquire under the context of a lost lock")
			e.refused(cs[0], name, owner)
			p := e.acquireUnder(context.WithoutCancel(ctx), cs[0], name, owner)
			e.awaitQueue(name, 2)
			p.waits("somebody else holds")
			e.release(next)
			k := p.granted(patient, "the holder released")
			e.grows(next.Token(), k.Token())
			e.is(outer.Release(e.ctx), locker.ErrLost, "release of the lost handle")
			e.holds(k, "after the release of the lost handle")
			e.release(k)
		}),
)

// oneTicket fails unless the ticket of k is held and the only one of its queue.
func (e *env) oneTicket(k *locker.Lock) {
	queue := e.queueOf(k.Name())
	if len(queue) != 1 || !queue[0].Held || queue[0].Token != k.Token() {
		e.failf("the queue is %s, want the one ticket %d", show(queue), k.Token())
	}
}

// reenters acquires a name that is already held.
func (e *env) reenters(ctx context.Context, l locker.Locker, outer *locker.Lock, opts ...locker.Option) *locker.Lock {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	k, err := l.Acquire(ctx, outer.Name(), opts...)
	e.ok(err, "re-enter %q", outer.Name())
	e.atMost(time.Since(begun), slack, "re-entry")
	if k.Token() != outer.Token() {
		e.failf("re-entry has token %d, the lock has %d", k.Token(), outer.Token())
	}
	return k
}
