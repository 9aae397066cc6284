package locker

import (
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// leaseState is the state of a lease:
//
//	held ──► released        the last handle was released, or the Client closed
//	  └────► lost            the store said so, or the validity ended
//
// The store may still have the ticket of a lost lease. It still has the ticket of a
// lease that was released within its minimum hold. The removals have such tickets.
type leaseState uint8

const (
	held leaseState = iota
	released
	lost
)

// lease is a granted ticket, with the handles that share it by re-entry.
// leases.mu guards the fields that change.
type lease struct {
	core     *core
	hold     driver.Hold
	owner    string
	owned    *owned        // by which its explicit owner re-enters it, or nil
	maxLease time.Duration // the longest lease that the store gives; 0: as asked
	began    time.Time     // the time of the grant
	minHold  time.Duration // of the request
	observed *observed     // nil without observers

	heapNode    // when the goroutine acts on it
	state       leaseState
	handles     []*Lock
	renewers    int           // handles that want renewal
	ttl         time.Duration // what a renewal asks for
	fixedEnd    time.Time     // the end of a lease that is longer than maxLease, if nobody wants renewal; zero when it needs no more
	validUntil  time.Time     // the end of the validity
	storeUntil  time.Time     // by then the store's lease is over, unless it is renewed
	renewAt     time.Time     // the next renewal
	renewing    bool          // a renewal is under way
	provisional bool          // the store has not been asked for the whole length yet
	waived      bool          // the minimum hold does not count: the caller has not got the lock yet, and nobody else has
	reentered   bool          // others have

	first  Lock     // the first handle, allocated with the lease
	single [1]*Lock // backs handles while there is one
}

// errExpired is the cause of a loss that the clock has found.
var errExpired = errors.New("the lease was not renewed in time")

// newLease makes the lease of a grant. asked is Grant.Asked by the core's clock.
func newLease(c *core, r *request, req *driver.Request, g driver.Grant, asked, now time.Time) *lease {
	l := &lease{
		core: c, hold: req.Hold(g.Token), owner: req.Owner, maxLease: g.TTL,
		began: now, minHold: r.minHold, ttl: r.ttl,
	}
	l.handles = l.single[:0]
	l.addHandle(&l.first, r)
	if g.Claim > 0 {
		l.beginProvisional(g.Claim, asked, now)
	} else {
		l.extendValidity(startOf(r, req, g, asked, now), r.leaseLength(), now)
	}
	return l
}

// beginProvisional begins a provisional lease. It is renewed when a third of it is
// over, as every lease is, so that a short hold costs no renewal. But a fixed
// lease has to end at its TTL, so it is renewed at once.
func (l *lease) beginProvisional(length time.Duration, asked, now time.Time) {
	l.extendValidity(asked, min(length, l.ttl), now)
	l.provisional = true
	if l.renewers == 0 {
		l.renewAt = now
	}
}

// startOf is when the validity of a grant begins: when it was asked for. If the store's
// lease is longer than the caller asked for, because the store's minimum is longer or the
// lease is a session's, validity may begin later, up to now, as long as it ends before
// the store's lease.
func startOf(r *request, req *driver.Request, g driver.Grant, asked, now time.Time) time.Time {
	given := req.TTL
	if g.TTL > 0 {
		given = min(given, g.TTL)
	}
	if spare := given - r.leaseLength(); spare > 0 {
		return asked.Add(min(spare, max(0, now.Sub(asked))))
	}
	return asked
}

// minHoldEnd is the end of the minimum hold; without one, the time of the grant. With leases.mu
// held, or after the end of the lease.
func (l *lease) minHoldEnd() time.Time {
	if l.waived {
		return l.began
	}
	return l.began.Add(l.minHold)
}

// isBrief reports whether less than a third of the validity is left when the grant comes. Before
// l is shared.
func (l *lease) isBrief(now time.Time) bool {
	length := l.storeUntil.Sub(now)
	return l.validUntil.Sub(now) < (length-l.core.marginOf(length))/3
}

// wantsRenewal reports whether the next renewal may be sent. With leases.mu held.
func (l *lease) wantsRenewal() bool {
	return (l.renewers > 0 || l.provisional || l.isLong()) && !l.renewing && l.renewAt.Before(l.validUntil)
}

// length is the length that a renewal at now asks for. A provisional lease is
// renewed for what the request asked for, its minimum hold included. One that ends later
// than the store's can is renewed for as long as the store's, but not beyond its end.
func (l *lease) length(now time.Time) time.Duration {
	switch {
	case l.provisional:
		return max(l.ttl, l.minHold)
	case l.fixedEnd.After(l.validUntil):
		length := min(max(l.ttl, l.maxLease), l.fixedEnd.Sub(now))
		if l.renewers > 0 {
			length = max(length, l.ttl)
		}
		return length
	}
	return l.ttl
}

// isLong reports whether the lease is a fixed one that lasts longer than the store's.
func (l *lease) isLong() bool { return l.renewers == 0 && l.fixedEnd.After(l.validUntil) }

// addHandle makes k a handle. With leases.mu held, or before l is shared.
func (l *lease) addHandle(k *Lock, r *request) {
	k.lease = l
	k.renews = !r.fixed
	if k.renews {
		l.renewers++
	}
	l.handles = append(l.handles, k)
}

// extendValidity notes that the store has given a lease of the given length. The
// validity counts from asked, and is never shortened; the answer came now. With
// leases.mu held, or before l is shared.
func (l *lease) extendValidity(asked time.Time, length time.Duration, now time.Time) {
	if most := l.maxLease; most > 0 && length > most {
		// A longer fixed lease is renewed until its end, so that a process that was
		// paused for longer than the store's lease learns of its loss by the clock.
		if end := asked.Add(length); end.After(l.fixedEnd) {
			l.fixedEnd = end
		}
		length = most
	}
	// The next renewal comes TTL/3 after this one, or when no more than two thirds
	// of the TTL are left of a longer lease, and before the validity ends in any case.
	valid := length - l.core.marginOf(length)
	ttl := l.ttl
	if l.fixedEnd.After(asked.Add(valid)) { // the next renewal is as long as this one
		ttl = max(ttl, length)
	}
	l.renewAt = asked.Add(max(min(length/3, valid/2), valid-ttl+ttl/3))
	if until := asked.Add(valid); until.After(l.validUntil) {
		l.validUntil = until
	}
	if until := now.Add(length); until.After(l.storeUntil) {
		l.storeUntil = until
	}
}
