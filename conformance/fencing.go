package conformance

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockerproject/locker"
)

// Each row is what happens between two grants.
var fencing = topic("fencing",
	between("after-release", "D3 C6",
		"tokens grow from grant to grant, across processes and with the queue empty in between", func(t *tokens) {
			for i := range rounds(15) {
				t.cycle(t.cs[i%3], "after a release")
			}
		}),
	between("after-reconnect", "D3 C6",
		"a process that begins anew gets greater tokens than the one before it", func(*tokens) {}),
	between("after-waiting", "D3 C6",
		"tokens grow over grants to waiters, and a ticket's number in the queue is its token", func(t *tokens) {
			k := t.take(t.cs[0], "first")
			var ps []*pending
			for i := range 4 {
				ps = append(ps, t.e.queue(t.cs[i%3], t.name, i+2))
			}
			numbers := t.e.queueOf(t.name)
			t.e.release(k)
			for i, p := range ps {
				k := p.granted(patient, "its turn came")
				t.next(k, "to a waiter")
				if want := numbers[i+1].Token; want != k.Token() {
					t.e.failf("a waiter was queued as %d and got token %d", want, k.Token())
				}
				t.e.release(k)
			}
		}),
	between("after-expiry", "D3 D10 C6",
		"the token after a lease that ended by itself is greater", func(t *tokens) {
			ttl := t.e.ttl()
			t.take(t.cs[0], "first", locker.WithTTL(ttl), locker.WithoutRenewal())
			k := t.e.queueBehind(t.cs[1], t.name).granted(t.e.leaseEnd(ttl), "the lease was granted")
			t.next(k, "after a lease that ended by itself")
			t.e.release(k)
		}),
	between("after-loss", "D3 D7 D16 C6",
		"the token after a holder that was cut off is greater, and the process that was cut off works again once the connection is back", func(t *tokens) {
			ttl := t.e.ttl()
			c, link := t.e.linked()
			first := t.take(c, "first", locker.WithTTL(ttl))
			p := t.e.queueBehind(t.e.client(), t.name)
			link.Cut()
			k := p.granted(t.e.crash(ttl), "the holder was cut off")
			t.e.is(first.Err(), locker.ErrLost, "the holder that was cut off")
			t.next(k, "after the holder was lost")
			t.e.release(k)
			link.Heal()
			t.cycle(c, "to the one that was cut off")
		}),
	between("after-break", "D3 C6",
		"the token after a break is greater", func(t *tokens) {
			k := t.take(t.cs[0], "first")
			err := t.cs[1].Break(t.e.within(patience), t.name, k.Token())
			if errors.Is(err, locker.ErrUnsupported) {
				err = k.Release(t.e.within(patience))
			}
			t.e.ok(err, "break")
		}),
	between("after-idle", "D3 D18 C6",
		"tokens go on growing after the store has removed everything about an idle name", func(t *tokens) {
			ttl, c := t.e.ttl(), t.e.client()
			for range 10 {
				t.cycle(c, "with a short lease", locker.WithTTL(ttl))
			}
			t.e.ok(c.Close(), "close")
			t.e.sleep(2 * ttl)
		}),
	between("after-tries", "D3 D6 C6",
		"tokens grow over refused and cancelled tickets", func(t *tokens) {
			k := t.take(t.cs[0], "to a holder")
			for range 3 {
				t.e.refused(t.cs[1], t.name)
			}
			p := t.e.queue(t.cs[1], t.name, 2)
			p.cancel(nil)
			_ = p.ended(patient, "it was cancelled")
			t.e.release(k)
		}),
	between("shared", "D3 C6",
		"every reader and permit has its own token, and the tokens grow", func(t *tokens) {
			var locks []*locker.Lock
			for i := range 6 { // of two alike the second does not grow
				locks = append(locks, t.take(t.cs[i%3], "to a reader", shared(i%2*10).options()...))
			}
			t.e.release(locks...)
		}),
	between("concurrent", "D3 D4 C6",
		"readers and permits that many goroutines of one process take at the same time have different tokens, and no TryAcquire among them is refused", func(t *tokens) {
			const most = 12
			for _, kd := range []kind{shared(0), shared(most)} {
				locks := make([]*locker.Lock, most)
				t.e.each(most, func(i int) {
					acquire := t.cs[i%2].Acquire
					if i%4 > 1 {
						acquire = t.cs[i%2].TryAcquire
					}
					var err error
					locks[i], err = acquire(t.e.within(patience), t.name, kd.options()...)
					t.e.ok(err, "acquire %q at the same time as others", t.name)
				})
				slices.SortFunc(locks, func(a, b *locker.Lock) int { return cmp.Compare(a.Token(), b.Token()) })
				for _, k := range locks {
					t.next(k, "to one of many at once") // of two alike the second does not grow
				}
				t.e.each(most, func(i int) { t.e.release(locks[i]) })
			}
		}).keepsBusy(),
	between("after-restart", "D3 C6",
		"tokens go on growing after the store was killed and started again, with no ticket queued, with the last one, and with an earlier one",
		restart(func(*tokens) func() { return func() {} }), restart((*tokens).reader), restart(func(t *tokens) func() {
			release := t.reader()
			t.many()
			return release
		})).needs(NeedServer).at(ownStore),
)

// between returns a case in which the tokens that are granted after something has
// happened are greater than those before: to a process that was there, and to one that
// begins then. What is the only thing happens twice.
func between(name, rules, explain string, happens ...func(*tokens)) Case {
	return newCase(name, rules, explain, func(e *env) {
		t := &tokens{e: e, name: e.name(name), cs: e.clients(3)}
		for i := range max(2, len(happens)) {
			t.cycle(t.cs[0], "to the first")
			happens[i%len(happens)](t)
			t.cycle(t.cs[0], "to the same process", locker.Shared())
			c := e.client()
			t.cycle(c, "to a new process")
			e.ok(c.Close(), "close")
			t.cycle(t.cs[1], "to another process")
		}
	})
}

// restart kills the store and starts it again. queued queues what it finds then, and returns
// how to release that.
func restart(queued func(*tokens) (release func())) func(*tokens) {
	return func(t *tokens) {
		s := t.e.server()
		t.many()
		release := queued(t)
		s.kill()
		s.start()
		t.e.worksAgain(t.cs...)
		t.cycle(t.cs[1], "after a restart", locker.Shared())
		release()
	}
}

// tokens checks that the tokens of one name grow.
type tokens struct {
	e    *env
	name string
	cs   []*locker.Client
	last uint64
}

// next checks the token of the next grant.
func (t *tokens) next(k *locker.Lock, when string) {
	if k.Token() <= t.last {
		t.e.failf("token %d was granted %s, after token %d", k.Token(), when, t.last)
	}
	t.last = k.Token()
}

// take acquires.
func (t *tokens) take(l locker.Locker, when string, opts ...locker.Option) *locker.Lock {
	k := t.e.take(l, t.name, opts...)
	t.next(k, when)
	return k
}

// cycle acquires and releases.
func (t *tokens) cycle(l locker.Locker, when string, opts ...locker.Option) {
	t.e.release(t.take(l, when, opts...))
}

// many uses up more tokens than other names need when the store is back.
func (t *tokens) many() {
	for i := range 16 {
		t.cycle(t.cs[i%2], "before a restart", locker.Shared())
	}
}

// reader holds until release.
func (t *tokens) reader() (release func()) {
	k := t.take(t.cs[0], "before a restart", locker.Shared())
	return func() { t.e.release(k) }
}
