package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var expiry = topic("expiry",
	newCase("fixed-lease", "D10 D11 C3",
		"a fixed lease, of a writer, a reader, a permit or a TryAcquire, ends at its TTL, not earlier, and the holder is notified", func(e *env) { fixedLeases(e, e.ttl()+shortTTL*3/4, false) }),
	newCase("short-lease", "D10 C3",
		"a lease shorter than the store can give ends at its TTL too, while its process lives", func(e *env) { fixedLeases(e, shortTTL/2, false) }),
	newCase("crashed-holder", "D10 C3",
		"the lock of a process that died is granted to the next within Bounds.Crash", func(e *env) { crashedHolder(e, e.ttl(), nil) }),
	newCase("crashed-after-renewals", "D10 D12 C3",
		"Bounds.Crash counts from the last renewal, and earlier renewals do not add up", func(e *env) {
			ttl := e.lasting()
			crashedHolder(e, ttl, func(k *locker.Lock) time.Duration {
				e.sleep(ttl * 3 / 2)
				e.holds(k, "renewed for %v", ttl*3/2)
				return ttl
			})
		}),
	newCase("crashed-extended", "D10 D12 C3",
		"a process that dies, or is cut off, loses a lock that it has extended before the next is granted, within Bounds.Crash of the extension", func(e *env) {
			ttl := e.ttl()
			crashedHolder(e, ttl, func(k *locker.Lock) time.Duration {
				e.ok(k.Extend(e.within(patience), 3*ttl), "extend")
				return 3 * ttl
			}, locker.WithoutRenewal())
		}),
	newCase("crashed-reader", "D10 D4 C3",
		"a reader that died blocks a writer for no longer than Bounds.Crash; live readers keep the lock", func(e *env) {
			name, ttl := e.name("reader"), e.lasting()
			c, link := e.linked()
			e.take(c, name, locker.Shared(), locker.WithTTL(ttl))
			alive := e.take(e.client(), name, locker.Shared(), locker.WithTTL(ttl))
			w := e.queue(e.client(), name, 3)
			link.Cut()
			e.awaitQueueWithin(e.crash(ttl), name, 2)
			w.waits("a live reader holds")
			e.holds(alive, "after another reader died")
			e.handOver(alive, w)
		}),
	newCase("renewed-lease", "D12 D15 C3",
		"a lease that is renewed lasts for many TTLs, and nobody else is granted meanwhile", func(e *env) {
			name, ttl := e.name("renewed"), e.lasting()
			lives := ttl * 5 / 2
			cs := e.clients(2)
			k := e.take(cs[0], name, locker.WithTTL(ttl))
			readers := e.take(cs[1], e.name("renewed-readers"), locker.Shared(), locker.WithTTL(lastingTTL))
			p := e.queue(cs[1], name, 2)
			since := e.queueOf(name)[0].Since
			for begun := time.Now(); time.Since(begun) < lives; {
				e.sleep(ttl / 4)
				e.holds(k, "%v after its grant, with a lease of %v that is renewed", time.Since(begun), ttl)
				e.holds(readers, "with a lease of %v that is renewed", lastingTTL)
				p.waits("the holder renews")
			}
			e.refused(cs[1], name)
			if moved := e.queueOf(name)[0].Since.Sub(since); !since.IsZero() && moved > lives/2 {
				e.failf("the time of the grant has moved by %v, with renewals (D15)", moved)
			}
			e.release(readers)
			e.handOver(k, p)
		}),
	// One of many tickets is removed without the core: its next renewal fails, and no other.
	newCase("renewed-together", "D12 D14 C3",
		"many locks of one process are renewed in a batch, and each gets its own answer", func(e *env) {
			n := rounds(32)
			c, w := e.wired()
			locks, holds := make([]*locker.Lock, n), make([]driver.Hold, n)
			for i := range n {
				locks[i] = e.take(c, e.name(fmt.Sprint("together-", i)), locker.WithTTL(lastingTTL))
				holds[i] = w.lastGrant()
			}
			e.sleep(lastingTTL / 2)
			gone := n / 3
			e.drop(w.d, holds[gone])
			e.eventually(slacks(1).plus(lastingTTL, "a TTL, in which there are renewals"), "waiting for a renewal to fail", func() error {
				if locks[gone].Err() == nil {
					return errors.New("a lock whose ticket is gone from the store is held")
				}
				return nil
			})
			e.sleep(2 * lastingTTL)
			for i, k := range locks {
				if i != gone {
					e.holds(k, "after two TTLs of renewals, beside one that was lost")
					e.oneTicket(k)
					e.release(k)
				}
			}
		}).keepsBusy().waitsLong(),
	newCase("short-leases-repeated", "D11 C3",
		"short leases are granted many times in a row, and no ticket is lost", func(e *env) {
			var lost atomic.Int64
			name := e.name("short")
			c := e.client(locker.WithObserver(func(_ context.Context, ev locker.Event) {
				early := ev.Elapsed < shortTTL/2 // else the answer of the store came late
				if ev.Name == name && early && (ev.Kind == locker.EventRejoined || ev.Kind == locker.EventLost) {
					lost.Add(1)
				}
			}))
			held := e.take(c, e.name("session"), locker.WithTTL(shortTTL)) // a shared session is as old as this lease
			d := e.driver()
			for range 8 {
				e.release(e.takeNow(c, name, locker.WithTTL(shortTTL)))
				e.askedInTime(d)
				e.sleep(shortTTL * 3 / 8)
			}
			if n := lost.Load(); n > 0 {
				e.failf("%d tickets of leases of %v were lost in half of that, though all were released in time", n, shortTTL)
			}
			_ = held.Release(e.within(patience)) // it may be lost if the machine is loaded
		}),
	newCase("extended-lease", "D12 C3",
		"Extend lengthens a fixed lease in the store too, and never shortens it, and the lease still ends", func(e *env) { fixedLeases(e, e.lasting(), true) }),
	newCase("crashed-waiters", "D8 C3",
		"several waiters that died delay the queue by Bounds.Liveness in all", func(e *env) {
			k, live := crashWaiters(e, e.name("waiters"), 3, 0)
			e.release(k)
			next := live.granted(e.deadWaiters(), "the holder released and three waiters ahead were dead")
			e.holds(next, "after waiters ahead died")
			e.release(next)
		}).needs(NeedLink),
	newCase("crashed-waiters-leave", "D8 C3",
		"waiters that died, soon or after a long wait, leave the queue within Bounds.Liveness, also while the lock is held", func(e *env) {
			lived := []time.Duration{0, e.heartbeats()}
			e.each(len(lived), func(i int) {
				name := e.name("waiters")
				k, live := crashWaiters(e, name, 2, lived[i]) // the second is a reader
				e.awaitQueueWithin(e.deadWaiters(), name, 2)
				e.holds(k, "while waiters died")
				begun := time.Now()
				e.handOver(k, live)
				e.atMost(live.at.Sub(begun), slack, "the hand-off after dead waiters had left the queue")
			})
		}).needs(NeedLink),
	// Bounds.Crash is tested with a lease that is longer than what slack could hide.
	newCase("stated-bounds", "D10 C3",
		"the bounds that the driver states are possible, and a lease ends within them and not before its TTL", func(e *env) {
			for _, ttl := range []time.Duration{
				time.Millisecond, shortTTL, waiterTTL, 30 * time.Second, 10 * time.Minute, 24 * time.Hour,
			} {
				e.possible(ttl)
			}
			name := e.name("bounds")
			ttl := max(4*slack, e.ttl())
			d, die := e.killableDriver()
			r := e.request(name)
			r.TTL, r.Renewed = ttl, false
			asked := time.Now()
			g, err := d.Acquire(e.within(patience), r)
			e.ok(err, "acquire %q", name)
			granted := time.Now()
			die()
			other := e.driver()
			p := e.queueAt(other, e.request(name), 2)
			crash := e.crash(ttl)
			next := p.granted(crash.from(granted), "a lease was granted that nobody renews")
			if g.TTL > 0 {
				ttl = min(ttl, g.TTL) // the store may have given less than was asked, and reported it
			}
			p.notBefore(asked.Add(ttl), "a lease of %v (D10)", ttl)
			e.drop(other, next)
		}),
	newCase("long-waiter", "D8 D15 C3",
		"a live waiter stays queued for longer than Bounds.Liveness", func(e *env) {
			name, waits, cs := e.name("patient"), e.heartbeats(), e.clients(3)
			k := e.take(cs[0], name)
			p := e.queue(cs[1], name, 2, locker.WithTTL(waiterTTL))
			before := e.queueOf(name)[1]
			last := e.queue(cs[2], name, 3, locker.WithTTL(waiterTTL))
			e.sleep(waits)
			queue := e.queueOf(name)
			if len(queue) != 3 || queue[1].Token != before.Token || !before.Since.IsZero() && queue[1].Since.Sub(before.Since) > max(slack*3/2, waits/2) {
				e.failf("the queue after %v of waiting is %+v, want ticket %d still second, since %v (D15)", waits, queue, before.Token, before.Since)
			}
			e.release(k)
			k = p.granted(patient, fmt.Sprintf("it waited for %v", waits))
			if k.Token() != before.Token {
				e.failf("the waiter got token %d, but queued as %d", k.Token(), before.Token)
			}
			e.handOver(k, last)
		}),
	// From the grant of the lock on, processes that come and go ask for it: some try, the others wait for a
	// part of the TTL. None of them sees the holder for as long as a lease lasts. They are refused while
	// the holder renews.
	newCase("short-lived-visitors", "D10 C3",
		"the lock of a process that died is granted within Bounds.Crash even if each process that asks for it lives for a moment", func(e *env) {
			const pause = 500 * time.Millisecond
			ttl := e.lasting()
			e.each(2, func(i int) {
				name := e.name("visited")
				every, opts := pause, []locker.Option{locker.WithTTL(ttl)}
				if i == 1 {
					opts = append(opts, locker.WithWait(ttl/4))
					every += ttl / 4
				}
				c, link := e.linked()
				k := e.take(c, name, locker.WithTTL(ttl))
				for begun := time.Now(); time.Since(begun) < ttl*3/2; e.sleep(pause) {
					if e.visit(name, i == 1, opts...) {
						e.failf("a process that came for a moment was granted %q while its holder renewed (its error is %v)", name, k.Err())
					}
				}
				link.Cut()
				e.eventually(e.crash(ttl).plus(every, "from one visit to the next"), "visiting "+name+", whose holder has died", func() error {
					if e.visit(name, i == 1, opts...) {
						return nil
					}
					e.sleep(pause)
					return errors.New("each visitor was refused")
				})
				e.is(k.Err(), locker.ErrLost, "the holder that was cut off, when a visitor was granted")
			})
		}),
)

// fixedLeases calls fixedLease for leases of each kind, all at once. The last is from a TryAcquire. On a busy machine its answer
// may come when the lease is over: then there is no lock, where Acquire queues again, and it is tried once more.
func fixedLeases(e *env, ttl time.Duration, extends bool) {
	cs, kinds := e.clients(2), []kind{exclusively, shared(0), shared(2), exclusively}
	e.each(len(kinds), func(i int) {
		acquire := cs[0].Acquire
		if i == len(kinds)-1 {
			acquire = cs[0].TryAcquire
		}
		opts := kinds[i].options(locker.WithTTL(ttl), locker.WithoutRenewal())
		before, name := time.Now(), e.name("fixed")
		k, err := acquire(e.within(patience), name, opts...)
		if errors.Is(err, locker.ErrUnavailable) && time.Since(before) >= ttl {
			before, name = time.Now(), e.name("fixed")
			k, err = acquire(e.within(patience), name, opts...)
		}
		e.ok(err, "acquire %q", name)
		var lengthen func(time.Duration)
		if extends {
			lengthen = func(ttl time.Duration) { e.ok(k.Extend(e.within(patience), ttl), "extend") }
		}
		fixedLease(e, cs[1], k, before, ttl, lengthen)
	})
}

// fixedLease waits for the end of a lease that was asked for after a moment, with another client queued. If there is a
// way to lengthen the lease, it is used, also with less than is left.
func fixedLease(e *env, other *locker.Client, k *locker.Lock, before time.Time, ttl time.Duration, lengthen func(time.Duration)) {
	if lengthen != nil {
		ttl, before = 2*ttl+shortTTL*3/4, time.Now()
		lengthen(ttl)
	}
	after := time.Now()
	if lengthen != nil {
		lengthen(ttl / 4)
	}
	p := e.queueBehind(other, k.Name())
	next := p.granted(e.leaseEnd(ttl).from(after), "the lease was granted or lengthened")
	p.notBefore(before.Add(ttl), "a lease of %v", ttl)
	e.is(k.Err(), locker.ErrLost, "the holder after the next was granted")
	if !closedWithin(k.Done(), slack) { // after a pause of this process, Err reports the loss before Done is closed
		e.failf("the holder's Done is open though its lease is over and the next holds")
	}
	e.is(k.Release(e.ctx), locker.ErrLost, "release of a lease that is over")
	e.grows(k.Token(), next.Token())
	e.holds(next, "after the lease before it ended")
	e.release(next)
}

// crashedHolder cuts a holder off, and waits for the grant of the next waiter. Before
// that, lives may do something, and returns the TTL that the lease has then.
func crashedHolder(e *env, ttl time.Duration, lives func(*locker.Lock) time.Duration, opts ...locker.Option) {
	name := e.name("crash")
	c, link := e.linked()
	k := e.take(c, name, append(opts, locker.WithTTL(ttl))...)
	if lives != nil {
		ttl = lives(k)
	}
	p := e.queueBehind(e.client(), name)
	link.Cut()
	next := p.granted(e.crash(ttl), "the holder was cut off for good")
	e.is(k.Err(), locker.ErrLost, "the holder that was cut off, when the next was granted")
	e.holds(next, "after the crash")
	e.release(next)
}

// askedInTime fails if a lease counts from so long ago that it was over before it was
// requested. The core would renew it, each time.
func (e *env) askedInTime(d driver.Driver) {
	r := e.request(e.name("asked"))
	r.TTL = e.ttl()
	begun := time.Now()
	g, err := d.Acquire(e.within(patience), r)
	e.ok(err, "acquire %q at the driver interface", r.Name)
	if old := begun.Sub(g.Asked); old >= r.TTL {
		e.failf("Grant.Asked of a lease of %v is %v before the call of Acquire (D11)", r.TTL, old)
	}
	e.drop(d, r.Hold(g.Token))
}

// crashWaiters queues n waiters of different processes after a holder, and a live
// one after them, and cuts the n off after some time.
func crashWaiters(e *env, name string, n int, lived time.Duration) (k *locker.Lock, live *pending) {
	k = e.take(e.client(), name)
	links := make([]Link, n)
	for i := range n {
		var c *locker.Client
		c, links[i] = e.linked()
		e.queue(c, name, i+2, kind{shared: i == 1}.options(locker.WithTTL(waiterTTL))...)
	}
	live = e.queue(e.client(), name, n+2, locker.WithTTL(waiterTTL))
	e.sleep(lived)
	for _, link := range links {
		link.Cut()
	}
	return k, live
}

// heartbeats returns a time in which a waiter of waiterTTL has sent more than one
// heartbeat: otherwise it would have left the queue.
func (e *env) heartbeats() time.Duration {
	return min(max(e.liveness()*3/2, shortTTL), patience)
}

// visit opens a driver as a process of its own, acquires a name at once or with a wait,
// and closes the driver. It reports whether the name was granted.
func (e *env) visit(name string, waits bool, opts ...locker.Option) bool {
	c := locker.New(e.open())
	acquire := c.TryAcquire
	if waits {
		acquire = c.Acquire
	}
	_, err := acquire(e.within(patience), name, opts...)
	e.ok(c.Close(), "close")
	if err != nil && !(waits && errors.Is(err, locker.ErrUnavailable)) { // a busy store may not have answered so soon
		e.is(err, locker.ErrNotAcquired, "a short visit of %q", name)
	}
	return err == nil
}

// possible fails if the bounds for a lease contradict each other.
func (e *env) possible(ttl time.Duration) {
	b := e.bounds(ttl)
	if b.MinTTL < 0 || b.MaxTTL < 0 || b.MaxTTL > 0 && b.MaxTTL < b.MinTTL || b.Liveness < 0 {
		e.failf("the bounds for a lease of %v are %+v, want no time negative and MinTTL ≤ MaxTTL", ttl, b)
	}
	least := ttl
	if b.MaxTTL > 0 {
		least = min(ttl, b.MaxTTL)
	}
	if b.Crash < least {
		e.failf("Bounds(%v).Crash is %v: a lease does not end before its TTL (D10), so nobody can be granted sooner than %v after its last renewal; a store that gives no lease so long states MaxTTL, which is %v",
			ttl, b.Crash, least, b.MaxTTL)
	}
}
