package conformance

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockerproject/locker"
)

var fencing = topic("fencing",
	newCase("after-release", "D3 C6",
		"tokens grow from grant to grant, across processes and with the queue empty in between", func(e *env) {
			ts, cs := e.tokens("release"), e.clients(3)
			for i := range rounds(30) {
				ts.cycle(cs[i%3], "after a release")
			}
		}),
	newCase("after-waiting", "D3 C6",
		"tokens grow over grants to waiters, and a ticket's number in the queue is its token", func(e *env) {
			ts, cs := e.tokens("waiting"), e.clients(3)
			k := e.take(cs[0], ts.name)
			ts.next(k, "first")
			var ps []*pending
			for i := range 4 {
				ps = append(ps, e.queue(cs[i%3], ts.name, i+2))
			}
			numbers := e.queueOf(ts.name)
			e.release(k)
			for i, p := range ps {
				k := p.granted(patient, "its turn came")
				ts.next(k, "to a waiter")
				if want := numbers[i+1].Token; want != k.Token() {
					e.failf("a waiter was queued as %d and got token %d", want, k.Token())
				}
				e.release(k)
			}
		}),
	newCase("after-expiry", "D3 D10 C6",
		"the token after a lease that ended by itself is greater", func(e *env) {
			ts, ttl, cs := e.tokens("expiry"), e.ttl(), e.clients(2)
			ts.next(e.take(cs[0], ts.name, locker.WithTTL(ttl), locker.WithoutRenewal()), "first")
			k := e.queueBehind(cs[1], ts.name).granted(e.leaseEnd(ttl), "the lease was granted")
			ts.next(k, "after a lease that ended by itself")
			e.release(k)
			ts.cycle(cs[0], "after that")
		}),
	newCase("after-loss", "D3 D7 D16 C6",
		"the token after a holder that was cut off is greater, and the process that was cut off works again once the connection is back", func(e *env) {
			ts, ttl := e.tokens("loss"), e.ttl()
			c, link := e.linked()
			first := e.take(c, ts.name, locker.WithTTL(ttl))
			ts.next(first, "first")
			p := e.queueBehind(e.client(), ts.name)
			link.Cut()
			k := p.granted(e.crash(ttl), "the holder was cut off")
			e.is(first.Err(), locker.ErrLost, "the holder that was cut off")
			ts.next(k, "after the holder was lost")
			e.release(k)
			link.Heal()
			ts.cycle(c, "to the one that was cut off")
		}),
	newCase("after-break", "D3 C6",
		"the token after a break is greater", func(e *env) {
			ts, cs := e.tokens("break"), e.clients(2)
			for range 2 {
				k := e.take(cs[0], ts.name)
				ts.next(k, "first")
				err := cs[1].Break(e.within(patience), ts.name, k.Token())
				if errors.Is(err, locker.ErrUnsupported) {
					e.release(k)
					continue
				}
				e.ok(err, "break")
				ts.cycle(cs[1], "after a break")
			}
			ts.cycle(cs[0], "after that")
		}),
	newCase("after-reconnect", "D3 C6",
		"a process that begins anew gets greater tokens than the one before it", func(e *env) {
			ts := e.tokens("reconnect")
			for range 4 {
				c := e.client()
				ts.cycle(c, "to a new process")
				ts.cycle(c, "to the same process")
				e.ok(c.Close(), "close")
			}
		}),
	newCase("after-idle", "D3 D18 C6",
		"tokens go on growing after the store has removed everything about an idle name", func(e *env) {
			ts, ttl, c := e.tokens("idle"), e.ttl(), e.client()
			for range 10 {
				ts.cycle(c, "with a short lease", locker.WithTTL(ttl))
			}
			e.ok(c.Close(), "close")
			e.sleep(2 * ttl)
			c = e.client()
			for range 2 {
				ts.cycle(c, "after the name was idle", locker.WithTTL(ttl))
			}
		}),
	newCase("after-tries", "D3 D6 C6",
		"tokens grow over refused and cancelled tickets", func(e *env) {
			ts, cs := e.tokens("tries"), e.clients(2)
			for range 3 {
				k := e.take(cs[0], ts.name)
				ts.next(k, "to a holder")
				for range 3 {
					e.refused(cs[1], ts.name)
				}
				p := e.queue(cs[1], ts.name, 2)
				p.cancel(nil)
				_ = p.ended(patient, "it was cancelled")
				e.release(k)
				ts.cycle(cs[1], "after a try and a wait that came to nothing")
			}
		}),
	newCase("shared", "D3 C6",
		"every reader and permit has its own token, and the tokens grow", func(e *env) {
			ts, cs := e.tokens("shared"), e.clients(3)
			var locks []*locker.Lock
			for i := range 6 {
				opt := locker.Shared()
				if i%2 == 1 {
					opt = locker.Limit(10)
				}
				k := e.take(cs[i%3], ts.name, opt)
				ts.next(k, "to a reader") // of two alike the second does not grow
				locks = append(locks, k)
			}
			e.release(locks...)
			ts.cycle(cs[0], "to a writer after readers")
			ts.cycle(cs[1], "to a reader after a writer", locker.Shared())
		}),
	newCase("concurrent", "D3 C6",
		"readers and permits that many goroutines of one process take at the same time have different tokens", func(e *env) {
			const most = 12
			ts, cs := e.tokens("at-once"), e.clients(2)
			ts.cycle(cs[0], "to the first")
			for _, opt := range []locker.Option{locker.Shared(), locker.Limit(most)} {
				locks := make([]*locker.Lock, most)
				e.each(most, func(i int) { locks[i] = e.take(cs[i%2], ts.name, opt) })
				slices.SortFunc(locks, func(a, b *locker.Lock) int { return cmp.Compare(a.Token(), b.Token()) })
				for _, k := range locks {
					ts.next(k, "to one of many at once") // of two alike the second does not grow
				}
				e.each(most, func(i int) { e.release(locks[i]) })
			}
			ts.cycle(cs[1], "to a writer after them")
		}).keepsBusy(),
)

// tokens checks that the tokens of one name grow.
type tokens struct {
	e    *env
	name string
	last uint64
}

func (e *env) tokens(label string) *tokens { return &tokens{e: e, name: e.name(label)} }

// next checks the token of the next grant.
func (t *tokens) next(k *locker.Lock, when string) {
	if k.Token() <= t.last {
		t.e.failf("token %d was granted %s, after token %d", k.Token(), when, t.last)
	}
	t.last = k.Token()
}

// cycle acquires and releases.
func (t *tokens) cycle(l locker.Locker, when string, opts ...locker.Option) {
	k := t.e.take(l, t.name, opts...)
	t.next(k, when)
	t.e.release(k)
}
