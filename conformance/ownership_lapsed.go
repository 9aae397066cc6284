package conformance

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

var lapses = topic("ownership",
	newCase("lapsed-not-revived", "D12 C4",
		"a renewal after the end of the lease returns ErrLost and revives nothing, whether or not another ticket was granted since", func(e *env) {
			ttl, d, other := e.ttl(), e.driver(), e.driver()
			if keeps(e, d, other, ttl) {
				return // a store with sessions keeps it while its process lives (D10)
			}
			ls := leases(e, d, other, ttl)
			awaitEnd(e, ls, ttl)
			if lister, ok := other.(driver.Lister); ok {
				e.notListed(lister, ls)
			}
			for _, l := range ls {
				l.check(e, d, other)
			}
		}),
	newCase("lapsed-while-cut-off", "D12 D14 C4",
		"the same for a process that was cut off until its lease was over", func(e *env) {
			ttl := e.ttl()
			d, link := e.linkedDriver()
			other := e.driver()
			ls := leases(e, d, other, ttl)
			link.Cut()
			awaitEnd(e, ls, ttl)
			link.Heal()
			for _, l := range ls {
				l.check(e, d, other)
			}
		}).needs(NeedLink).waitsLong(),
)

// lapse is a lease that ends, and is renewed afterwards.
type lapse struct {
	what string
	h    driver.Hold
	next *driverPending // the waiter for its end, if there is one
}

// leases takes leases of each kind, with a waiter for their end and without.
func leases(e *env, d, other driver.Driver, ttl time.Duration) (ls []*lapse) {
	for _, shared := range []bool{false, true} {
		for _, waited := range []bool{false, true} {
			r := e.request(e.name("lapse"))
			r.TTL, r.Renewed, r.Shared = ttl, false, shared
			l := &lapse{what: fmt.Sprintf("a lease of %v (shared: %v, granted since: %v)", ttl, shared, waited), h: e.grant(d, r)}
			if waited {
				l.next = e.acquireAt(other, e.request(r.Name))
			}
			ls = append(ls, l)
		}
	}
	return ls
}

// check renews late, twice in every way, and checks who holds the name then.
func (l *lapse) check(e *env, d, other driver.Driver) {
	for _, r := range slices.Repeat(e.renewals(d), 2) {
		var err error
		e.eventually(patient, "renewing late", func() error { // until the store has answered
			if err = r.renew(l.h, time.Minute); err == nil || errors.Is(err, driver.ErrLost) {
				return nil
			}
			return err
		})
		e.is(err, driver.ErrLost, "a late %s of %s: a lease that has ended is never revived (D12)", r.verb, l.what)
		queue := e.inspectAt(other, l.h.Name)
		for _, t := range queue {
			if t.ID == l.h.ID {
				e.failf("the queue after a late %s of %s shows the lapsed ticket: %+v (D12)", r.verb, l.what, queue)
			}
		}
	}
	if l.next != nil {
		h := l.next.granted(patient, "the lease was over")
		e.untouched(other, h)
		e.drop(other, h)
	}
}

// awaitEnd waits for the end of the leases.
func awaitEnd(e *env, ls []*lapse, ttl time.Duration) {
	b, begun := e.leaseEnd(ttl), time.Now()
	for _, l := range ls {
		if l.next != nil {
			l.next.granted(b.from(begun), "leases were granted that nobody renews")
		}
	}
	e.sleep(b.d - time.Since(begun)) // for the leases that nobody waits for
}

// keeps reports whether the store keeps a ticket whose lease is over while its
// process lives.
func keeps(e *env, d, other driver.Driver, ttl time.Duration) bool {
	r := e.request(e.name("kept"))
	r.TTL, r.Renewed = ttl, false
	return outlives(e, d, other, e.grant(d, r), ttl)
}

// outlives waits for the end of a lease that nobody renews any more. If the ticket is there after
// that, it releases it and returns true.
func outlives(e *env, d, other driver.Driver, h driver.Hold, ttl time.Duration) bool {
	deadline := time.Now().Add(e.leaseEnd(ttl).d)
	for {
		asked := time.Now() // the answer may come late
		queue := e.inspectAt(other, h.Name)
		switch {
		case len(queue) == 0:
			return false
		case asked.After(deadline):
			e.drop(d, h)
			return true
		}
		e.sleep(slack / 20)
	}
}

// notListed fails if a name is listed whose lease is over and for which nobody waits.
func (e *env) notListed(l driver.Lister, ls []*lapse) {
	names, err := l.List(e.within(patience))
	if !errors.Is(err, driver.ErrUnsupported) { // a wrapper of a driver that cannot
		e.ok(err, "list")
	}
	for _, lapse := range ls {
		if lapse.next == nil && slices.Contains(names, lapse.h.Name) {
			e.failf("the name of %s is listed after its end", lapse.what)
		}
	}
}
