package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var loss = topic("loss",
	newCase("lost-before-next-grant", "D10 D11 C7",
		"a holder that is cut off knows of its loss before another ticket is granted", func(e *env) { cutHolder(e, func(l Link) { l.Cut() }) }),
	newCase("answers-lost", "D10 D11 D14 C7",
		"a holder whose renewals are executed but not answered counts its validity from the last answered one", func(e *env) { cutHolder(e, func(l Link) { l.DropReplies(true) }) }),
	newCase("late-grant", "D11 C7",
		"a waiter gets a whole lease: its validity is nearly a TTL from the moment when it learns of the grant", func(e *env) {
			cs := e.clients(2)
			e.together(func() { lateGrant(e, cs, exclusively) }, func() { lateGrant(e, cs, shared(0)) })
		}),
	newCase("whole-lease", "D11 C7",
		"the lease of a waiter that was granted has its whole length, or the grant says that it is provisional", func(e *env) {
			name, d := e.name("whole"), e.driver()
			k := e.take(e.client(), name)
			p := e.queueAt(d, e.request(name), 2)
			e.release(k)
			h := p.granted(patient, "the holder released") // a provisional lease is renewed
			lease := min(e.liveness()+slack, longestLook)  // a dead waiter's would be over by then
			if g := p.grant; g.TTL > 0 {
				lease = min(lease, g.TTL)
			}
			e.sleep(time.Until(p.grant.Asked.Add(lease - slack/5)))
			e.refused(e.client(), name)
			e.drop(d, h)
		}),
	newCase("short-cut", "D14 C7",
		"a cut that ends before the lease is over loses no lock", func(e *env) {
			name := e.name("short")
			ttl := 3 * e.ttl()
			c, link := e.linked()
			k := e.take(c, name, locker.WithTTL(ttl))
			p := e.queue(e.client(), name, 2)
			link.Cut()
			e.sleep(ttl * 2 / 5) // a renewal or two fail
			link.Heal()
			e.sleep(ttl)
			e.holds(k, "a TTL after a cut that healed in time")
			p.waits("the holder renews again")
			e.handOver(k, p)
		}),
	newCase("break-notifies-holder", "D12 D13 C7",
		"after a break the next waiter is granted at once, and the holder is notified: at once if the driver is a LossNotifier, else at its next renewal; the cause wraps ErrLost", func(e *env) {
			causes := make(chan error, 1)
			name, cs, d := e.name("break"), e.clients(2), e.open()
			bound, ttl := e.breakNotice(d)
			c := e.clientOf(d, locker.WithObserver(func(_ context.Context, ev locker.Event) {
				if ev.Kind == locker.EventLost {
					causes <- ev.Err
				}
			}))
			k := e.take(c, name, locker.WithTTL(ttl))
			if !e.breakable() {
				e.is(cs[0].Break(e.ctx, name, k.Token()), locker.ErrUnsupported, "break on a store that cannot")
				e.holds(k, "after a break that is not supported")
				e.release(k)
				return
			}
			p := e.queue(cs[1], name, 2)
			begun := time.Now()
			e.ok(cs[0].Break(e.within(patience), name, k.Token()), "break")
			if !closedWithin(k.Done(), bound) {
				e.failf("the holder was not notified of a break within %v", bound)
			}
			e.is(k.Err(), locker.ErrLost, "the holder after a break")
			select {
			case cause := <-causes:
				e.is(cause, driver.ErrLost, "the cause of a loss by Break")
			case <-e.within(patience).Done():
				e.failf("the observer was not notified of the loss")
			}
			next := p.granted(patient, "the holder was broken")
			e.atMost(p.at.Sub(begun), slack, "the grant to the next after a break")
			e.is(k.Release(e.within(patience)), locker.ErrLost, "release after a break")
			e.holds(next, "after the broken lock was released")
			e.release(next)
		}),
	newCase("break-waiter", "D8 D13 C7",
		"a break removes a waiting ticket, those behind it move up at once, and its waiter queues again at the tail", func(e *env) {
			name, cs := e.name("break-waiter"), e.clients(3)
			k := e.take(cs[0], name, locker.Shared())
			if !e.breakable() {
				e.release(k)
				return
			}
			broken := e.queue(cs[1], name, 2)
			broken.moves = true
			other := e.queue(cs[2], name, 3, locker.Shared())
			token := e.queueOf(name)[1].Token
			begun := time.Now()
			e.ok(cs[0].Break(e.within(patience), name, token), "break of a waiter")
			reader := other.granted(patient, "the writer ahead was broken")
			e.atMost(other.at.Sub(begun), slack, "the grant to a reader after the writer ahead of it was broken")
			e.eventually(patient, "waiting for the broken waiter to queue again", func() error {
				if queue := e.queueOf(name); len(queue) != 3 || queue[2].Token <= token || queue[1].Token == token {
					return errors.New(show(queue))
				}
				return nil
			})
			e.release(k)
			broken.waits("it queued again behind the one that holds")
			e.handOver(reader, broken)
		}),
	newCase("break-unknown", "D13 C7",
		"a break of a token that is not queued returns ErrLost and changes nothing, and one of a reader or a permit changes no other", func(e *env) {
			name, c := e.name("break-unknown"), e.client()
			k := e.take(c, name)
			if e.breakable() {
				breakReaders(e)
				for _, token := range []uint64{k.Token() + 1, k.Token() + 1<<32, k.Token() + 1<<63} {
					e.is(c.Break(e.within(patience), name, token), locker.ErrLost, "break of token %d, which nobody has", token)
				}
				e.is(c.Break(e.within(patience), e.name("nobody"), k.Token()), locker.ErrLost, "break on a name nobody uses")
			}
			e.oneTicket(k)
			e.holds(k, "after others were broken")
			e.release(k)
		}),
	newCase("all-handles-end", "C7 C5",
		"a loss ends every handle and every context of the lock, with ErrLost", func(e *env) {
			name, ttl := e.name("handles"), e.ttl()
			c, link := e.linked()
			outer := e.take(c, name, locker.WithTTL(ttl))
			inner := e.reenters(outer.Context(e.ctx), c, outer, locker.WithTTL(ttl))
			ctx := inner.Context(outer.Context(e.ctx))
			link.Cut()
			p := e.queueBehind(e.client(), name)
			next := p.granted(e.crash(ttl), "the holder was cut off")
			for _, k := range []*locker.Lock{outer, inner} {
				e.is(k.Err(), locker.ErrLost, "a handle of a lost lock")
				<-k.Done()
			}
			e.is(context.Cause(ctx), locker.ErrLost, "the cause of a lost lock's context")
			link.Heal()
			for _, k := range []*locker.Lock{inner, outer} {
				e.is(k.Release(e.within(patience)), locker.ErrLost, "release of a handle of a lost lock")
			}
			e.holds(next, "after the handles of the lost lock were released")
			e.release(next)
		}),
)

// lateGrant lets a waiter wait for longer than the fixed lease that it asks for, and looks how long that is.
func lateGrant(e *env, cs []*locker.Client, kd kind) {
	name, ttl := e.name("late"), e.lasting()+shortTTL*3/4
	k := e.take(cs[0], name)
	p := e.queue(cs[1], name, 2, kd.options(locker.WithTTL(ttl), locker.WithoutRenewal())...)
	token := e.queueOf(name)[1].Token
	e.sleep(ttl * 3 / 2)
	released := time.Now()
	e.release(k)
	next := p.granted(patient, "the holder released")
	if next.Token() != token {
		e.failf("a waiter was queued as %d and got token %d", token, next.Token())
	}
	behind := e.queueBehind(cs[0], name)
	e.sleep(ttl/2 - time.Since(p.at))
	e.holds(next, "half a TTL after a grant that it had waited for")
	behind.waits("the lease is not over")
	behind.granted(e.leaseEnd(ttl), "the lease was granted")
	// The store may have granted it at any time since then (D10).
	behind.notBefore(released.Add(ttl-slack/2), "the lease of a holder that had waited")
	e.is(next.Err(), locker.ErrLost, "the holder after the next was granted")
	e.release(behind.lock)
}

// cutHolder cuts a holder off and checks that it notices its loss before the next
// ticket is granted. The long safety margin makes the order visible.
func cutHolder(e *env, cut func(Link)) {
	name, ttl := e.name("cut"), e.ttl()
	c, link := e.linked(locker.WithSafetyMargin(ttl / 4))
	k := e.take(c, name, locker.WithTTL(ttl))
	ctx := k.Context(e.ctx)
	p := e.queueBehind(e.client(), name)
	e.sleep(ttl / 2) // some renewals
	cut(link)
	select {
	case <-k.Done():
	case <-p.done: // both may be ready after a pause of this process; Err reads the clock
		if k.Err() == nil {
			e.failf("the next was granted (error %v) while the lease of the holder, which was cut off, was still valid to it", p.err)
		}
	case <-e.within(e.bounds(ttl).Crash + slack).Done():
		e.failf("a holder that was cut off has not noticed its loss")
	}
	e.is(k.Err(), locker.ErrLost, "the holder that was cut off")
	if !closedWithin(ctx.Done(), slack) {
		e.failf("the context of a holder that was cut off has not ended with its lease")
	}
	e.is(context.Cause(ctx), locker.ErrLost, "the cause of the holder's context")
	link.Heal()
	next := p.granted(e.crash(ttl), "the holder was cut off")
	e.is(k.Release(e.within(patience)), locker.ErrLost, "release of the lost lock")
	e.holds(next, "after the lost lock was released")
	e.release(next)
}

// breakReaders breaks two tickets of four that hold a name, of the process that breaks them.
func breakReaders(e *env) {
	name, d := e.name("readers"), e.open()
	c, other := e.clientOf(d), e.client()
	bound, ttl := e.breakNotice(d)
	first := e.take(c, name, locker.Shared(), locker.WithTTL(ttl))
	broken := []*locker.Lock{e.take(c, name, locker.Shared(), locker.WithTTL(ttl)), e.take(c, name, locker.Limit(9), locker.WithTTL(ttl))}
	last := e.take(other, name, locker.Shared(), locker.WithTTL(ttl))
	e.each(len(broken), func(i int) {
		e.ok(c.Break(e.within(patience), name, broken[i].Token()), "break of a reader or a permit")
		if !closedWithin(broken[i].Done(), bound) {
			e.failf("the holder was not notified of a break by its own process within %v", bound)
		}
		e.is(broken[i].Err(), locker.ErrLost, "the holder after a break")
	})
	e.holds(first, "after a break of others")
	e.holds(last, "after a break of others")
	queue := e.queueOf(name)
	if len(queue) != 2 || queue[0].Token != first.Token() || queue[1].Token != last.Token() {
		e.failf("the queue is %s after breaks of %d and %d, want %d and %d", show(queue), broken[0].Token(), broken[1].Token(), first.Token(), last.Token())
	}
	e.release(first)
	e.release(last)
}

// breakNotice returns how soon a holder is notified of a break, and a TTL with which no renewal comes before that.
func (e *env) breakNotice(d driver.Driver) (within, ttl time.Duration) {
	if _, ok := d.(driver.LossNotifier); ok {
		return slack, max(e.lasting(), 6*slack)
	}
	return e.lasting()/3 + slack, e.lasting()
}

// breakable reports whether the driver is a Breaker.
func (e *env) breakable() bool {
	_, d := e.controlled()
	_, ok := d.(driver.Breaker)
	return ok
}
