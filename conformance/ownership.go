package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var ownership = topic("ownership",
	newCase("strangers", "D1 D12 D13 C4",
		"a release or a renewal with another ticket's ID, for another name, or of a ticket that was released, returns ErrLost and changes nothing", func(e *env) {
			d1, d2 := e.driver(), e.driver()
			h := e.grant(d1, e.request(e.name("stranger")))
			for _, forged := range forgeries(e, h) {
				for _, d := range []driver.Driver{d1, d2} {
					e.notReleased(d, forged, "release of %+v, which is not %+v", forged, h)
					e.renewed(d, forged, time.Minute, driver.ErrLost, "renewal of %+v, which is not %+v", forged, h)
					e.untouched(d1, h)
				}
				if forged.Name != h.Name {
					e.awaitQueue(forged.Name, 0)
				}
			}
			e.drop(d1, h)
			e.notReleased(d1, h, "second release")
			e.renewed(d1, h, time.Minute, driver.ErrLost, "renewal of a ticket that was released")
		}),
	newCase("stale-handle", "D12 D13 C4",
		"after a lease has expired and the next is granted, the old holder's release and renewal return ErrLost and do not change the new holder", func(e *env) { staleHandle(e) }),
	newCase("stale-reader", "D12 D13 C4",
		"the same for a reader among readers", func(e *env) { staleHandle(e, locker.Shared()) }),
	newCase("release-delayed", "D10 D13 D14 C4",
		"a release that does not arrive is an error within a bound, and the lease ends by itself; if it arrives late, it does not affect the next holder", func(e *env) {
			name, ttl := e.name("delayed"), e.lasting()
			c, link := e.linked()
			k := e.take(c, name, locker.WithTTL(ttl))
			p := e.queue(e.client(), name, 2)
			link.Cut()
			e.releaseFails(k, "the store cannot be reached")
			e.is(k.Err(), locker.ErrReleased, "the handle after Release")
			next := p.granted(e.crash(ttl), "the holder, cut off, released")
			link.Heal()
			e.worksAgain(c)
			e.sleep(slack / 2)
			e.holds(next, "after the release of the holder before it arrived late")
			e.oneTicket(next)
			e.ok(next.Extend(e.within(patience), time.Minute), "extend")
			e.release(next)
		}),
	newCase("release-asked-again", "D13 D14 C4",
		"a release whose answer was lost is repeated, and does not affect the next holder", func(e *env) {
			name := e.name("again")
			c, w := e.wired()
			k := e.take(c, name)
			p := e.queue(e.client(), name, 2)
			w.loseNext(releaseVerb, 2)
			e.ok(k.Release(e.within(patience)), "release whose answer was lost twice")
			next := p.granted(patient, "the holder released")
			if n := w.count(releaseVerb); n < 2 {
				e.failf("%d releases were sent, want at least 2, since the first answers were lost", n)
			}
			e.holds(next, "after a late release of the holder before it")
			e.oneTicket(next)
			e.release(next)
		}),
	newCase("acquire-asked-again", "D1 C4",
		"an Acquire that is repeated, for a ticket that is held or waiting, does not queue a second one", func(e *env) {
			d1, d2 := e.driver(), e.driver()
			e.together(func() { askAgain(e, d1, d2, true, exclusively) }, func() { askAgain(e, d1, d2, false, shared(0)) })
		}),
	// The second answer is believed: the next is not granted while it says that the lease lasts.
	newCase("acquire-asked-again-late", "D1 D11 C4",
		"an Acquire that is repeated later, for a ticket that is held, does not promise a lease that ends earlier", func(e *env) {
			name, ttl := e.name("late"), max(4*slack, e.ttl())
			d, die := e.killableDriver()
			r := e.request(name)
			r.TTL, r.Renewed = ttl, false
			e.grant(d, r)
			e.sleep(ttl / 2)
			g, err := d.Acquire(e.within(patience), r)
			answered := time.Now()
			die()
			if err != nil {
				e.is(err, driver.ErrLost, "an Acquire that is repeated after half of the lease")
				return
			}
			for _, given := range []time.Duration{g.TTL, g.Claim} {
				if given > 0 {
					ttl = min(ttl, given)
				}
			}
			other := e.driver()
			p := e.queueAt(other, e.request(name), 2)
			next := p.granted(e.crash(r.TTL).from(answered), "the holder has died")
			p.notBefore(g.Asked.Add(ttl), "a lease of %v that was asked for at Grant.Asked (D11)", ttl)
			e.drop(other, next)
		}),
	newCase("longest-ids", "D1 C4",
		"IDs of 64 bytes that differ at the end only are of two tickets", func(e *env) {
			name, d := e.name("ids"), e.driver()
			id := fill(e.unique()+"-", "z", 63)
			var hs []driver.Hold
			for _, last := range []string{"a", "b"} {
				r := e.request(name)
				r.ID, r.Shared = id+last, true
				hs = append(hs, e.grant(d, r))
			}
			queue := e.inspectAt(d, name)
			if len(queue) != 2 || queue[0].ID != hs[0].ID || queue[1].ID != hs[1].ID {
				e.failf("the queue is %+v, want tickets %s and %s", queue, hs[0].ID, hs[1].ID)
			}
			e.drop(d, hs[0])
			e.untouched(d, hs[1])
			e.drop(d, hs[1])
		}),
	newCase("renew-never-shortens", "D12 C4",
		"a renewal for a shorter time than what is left changes nothing, and of a batch each has its own TTL and its own answer", func(e *env) {
			name, ttl, d1, d2 := e.name("shorten"), e.lasting(), e.driver(), e.driver()
			if most := e.bounds(ttl).MaxTTL; most > 0 && most < 4*ttl {
				ttl = e.ttl()
			}
			r := e.request(name)
			r.TTL = max(time.Minute, r.TTL)
			h := e.grant(d1, r)
			e.renewed(d1, h, ttl, nil, "renewal for less than is left")
			p := e.queueAt(d2, e.request(name), 2)
			short, long, lasts := e.renewedTogether(d1, h, ttl, r.TTL)
			var kept, keepsAll bool
			e.together(
				func() { e.sleep(e.bounds(ttl).Crash + slack) },
				func() { kept = outlives(e, d1, d2, short, ttl) },
				func() { keepsAll = keeps(e, d1, d2, ttl) },
			)
			if kept && !keepsAll {
				e.failf("a lease that was renewed for %v, beside others for %v, has not ended", ttl, r.TTL)
			}
			if lasts { // else the ticket's session gives no longer lease (D12)
				e.untouched(d1, long)
				e.drop(d1, long)
			}
			p.waits(fmt.Sprintf("the lease is one of %v, renewed for %v", r.TTL, ttl))
			queue := e.inspectAt(d1, name)
			if len(queue) != 2 || queue[0].ID != h.ID || !queue[0].Held {
				e.failf("the queue is %+v, want %s holding", queue, h.ID)
			}
			p.handOver(d1, h, d2)
		}),
	newCase("waiter-cannot-renew", "D12 C4",
		"a renewal of a waiting ticket returns ErrLost, and the ticket goes on waiting", func(e *env) {
			d1, d2 := e.driver(), e.driver()
			for _, shared := range []bool{false, true} {
				name := e.name("waiter")
				h, r := e.grant(d1, e.request(name)), e.request(name)
				r.Shared = shared
				p := e.queueAt(d2, r, 2)
				e.renewed(d2, r.Hold(0), time.Minute, driver.ErrLost, "renewal of a ticket that waits")
				e.awaitQueue(name, 2)
				p.handOver(d1, h, d2)
			}
		}),
	newCase("waiter-released", "D9 D13 C4",
		"a release by ID alone removes a waiting ticket, and its Acquire returns ErrLost", func(e *env) {
			name, d1, d2 := e.name("waiter"), e.driver(), e.driver()
			h := e.grant(d1, e.request(name))
			p := e.queueAt(d2, e.request(name), 2)
			p.awaitJoined(slacks(2)) // before that its driver may not know the answer to its request
			e.drop(d2, p.r.Hold(0))
			e.awaitQueue(name, 1)
			e.is(p.ended(patient, "its ticket was removed"), driver.ErrLost, "the Acquire of a ticket that was removed")
			e.notReleased(d2, p.r.Hold(0), "second release")
			e.untouched(d1, h)
			e.drop(d1, h)
		}),
)

// askAgain repeats requests: of a holder, which does or does not wait, and of a waiter behind it.
func askAgain(e *env, d1, d2 driver.Driver, wait bool, kd kind) {
	name := e.name("twice")
	r1, r2 := e.request(name), e.request(name)
	r1.Wait, r2.Shared = wait, kd.shared
	h1 := e.grant(d1, r1)
	if again := e.grant(d1, r1); again.Token != h1.Token {
		e.failf("the same request got token %d, then %d", h1.Token, again.Token)
	}
	e.awaitQueue(name, 1)

	first := e.queueAt(d2, r2, 2)
	first.awaitJoined(patient) // no request is under way when it is released
	first.cancel(nil)
	_ = first.ended(slacks(2), "it was cancelled")
	second := e.acquireAt(d2, r2)
	second.awaitJoined(patient)
	if queue := e.awaitQueue(name, 2); queue[1].Held {
		e.failf("the queue is %s, want the second ticket waiting", show(queue))
	}
	e.drop(d1, h1)
	h2 := second.granted(patient, "the holder released")
	e.untouched(d2, h2)
	if again := e.grant(d2, r2); again.Token != h2.Token {
		e.failf("the same request got token %d, then %d", h2.Token, again.Token)
	}
	e.untouched(d2, h2)
	e.drop(d2, r2.Hold(0))
}

// forgeries returns holds that resemble h.
func forgeries(e *env, h driver.Hold) []driver.Hold {
	otherID, otherName, neither := h, h, h
	otherID.ID = e.unique() + "-1"
	otherName.Name = e.name("other")
	neither.ID, neither.Token = e.unique()+"-1", 0
	return []driver.Hold{otherID, otherName, neither}
}

// renewal is a way to renew one lease.
type renewal struct {
	verb  string
	renew func(h driver.Hold, ttl time.Duration) error
}

// renewals returns all that the driver has.
func (e *env) renewals(d driver.Driver) []renewal {
	all := []renewal{{"Renew", func(h driver.Hold, ttl time.Duration) error { return d.Renew(e.within(patience), h, ttl) }}}
	if b, ok := d.(driver.BatchRenewer); ok {
		all = append(all, renewal{"RenewAll", func(h driver.Hold, ttl time.Duration) error {
			errs := b.RenewAll(e.within(patience), []driver.Renewal{{Hold: h, TTL: ttl}})
			if len(errs) != 1 {
				e.failf("RenewAll of one lease answered with %d errors", len(errs))
			}
			return errs[0]
		}})
	}
	return all
}

// renewed renews in every way that the driver has, and fails unless each answers want.
func (e *env) renewed(d driver.Driver, h driver.Hold, ttl time.Duration, want error, what string, args ...any) {
	for _, r := range e.renewals(d) {
		if err := r.renew(h, ttl); !errors.Is(err, want) {
			e.failf("%s (%s): got error %v, want %v", fmt.Sprintf(what, args...), r.verb, err, want)
		}
	}
}

// renewedTogether renews, in a batch if the driver has such, a lease of ttl for ttl, others that are not there, a lease of
// ttl for the time most, and h for less than is left. The first and the third are new. It reports whether the store can
// give the third a lease of that time.
func (e *env) renewedTogether(d driver.Driver, h driver.Hold, ttl, most time.Duration) (short, long driver.Hold, lasts bool) {
	nobodies := 1
	if _, ok := d.(driver.BatchRenewer); ok {
		nobodies = 110 // a driver may divide a batch
	}
	e.ok(e.steady(ttl/4, func() error {
		hs, gs := make([]driver.Hold, 2), make([]driver.Grant, 2)
		e.each(2, func(i int) {
			r := e.request(e.uncheckedName("together"))
			r.TTL, r.Renewed = ttl, false
			var err error
			gs[i], err = d.Acquire(e.within(patience), r)
			e.ok(err, "acquire %q at the driver interface", r.Name)
			hs[i] = r.Hold(gs[i].Token)
		})
		short, long = hs[0], hs[1]
		lasts = (gs[1].TTL == 0 || gs[1].TTL >= most) && (e.bounds(most).MaxTTL == 0 || e.bounds(most).MaxTTL >= most)
		rs := []driver.Renewal{{Hold: short, TTL: ttl}}
		for range nobodies {
			rs = append(rs, driver.Renewal{Hold: e.request(e.uncheckedName("nobody")).Hold(1), TTL: most})
		}
		rs = append(rs, driver.Renewal{Hold: long, TTL: most}, driver.Renewal{Hold: h, TTL: ttl})
		for i, err := range e.renewAll(d, rs) {
			if there := i == 0 || i > nobodies; there != (err == nil) {
				return fmt.Errorf("the answer for %+v, which is there: %v, is %s", rs[i], there, fmt.Sprint(err))
			}
		}
		return nil
	}), "renewing leases together, of which some are not there (D12)")
	return short, long, lasts
}

// renewAll renews several leases, in a batch if the driver has such.
func (e *env) renewAll(d driver.Driver, rs []driver.Renewal) (errs []error) {
	if b, ok := d.(driver.BatchRenewer); ok {
		errs = b.RenewAll(e.within(patience), rs)
		if len(errs) != len(rs) {
			e.failf("RenewAll of %d leases answered with %d errors", len(rs), len(errs))
		}
		return errs
	}
	for _, r := range rs {
		errs = append(errs, d.Renew(e.within(patience), r.Hold, r.TTL))
	}
	return errs
}

// untouched fails unless h is the only ticket, and held.
func (e *env) untouched(d driver.Driver, h driver.Hold) {
	queue := e.inspectAt(d, h.Name)
	if len(queue) != 1 || queue[0].ID != h.ID || !queue[0].Held || queue[0].Token != h.Token {
		e.failf("the queue is %+v, want only the holder %+v", queue, h)
	}
	e.renewed(d, h, 30*time.Second, nil, "renewal by the holder")
}

// staleHandle lets a lease end, grants the lock again, and then uses the old
// ticket, through the core and as a delayed request would.
func staleHandle(e *env, opts ...locker.Option) {
	name, ttl := e.name("stale"), e.ttl()
	c, w := e.wired()
	k := e.take(c, name, append(opts, locker.WithTTL(ttl), locker.WithoutRenewal())...)
	old := w.lastGrant()
	e.awaitQueueWithin(e.leaseEnd(ttl), name, 0)

	d := e.driver()
	r := e.request(name)
	r.Shared = old.Shared
	h := e.grant(d, r)
	e.is(k.Extend(e.within(patience), time.Minute), locker.ErrLost, "extending a lease that is over")
	e.is(k.Release(e.within(patience)), locker.ErrLost, "releasing a lease that is over")
	for range 2 {
		e.renewed(w.d, old, time.Minute, driver.ErrLost, "a late renewal of %+v", old)
		e.notReleased(w.d, old, "a late release of %+v", old)
		e.untouched(d, h)
	}
	e.grows(old.Token, h.Token)
	e.drop(d, h)
}
