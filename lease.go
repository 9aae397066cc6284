package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// leaseState is what a lease is to the core:
//
//	held ──► released        the last handle was released, or the Client closed
//	  └────► lost            the store said so, or the validity ended
//
// The ticket of a lost lease may still be in the store, and that of one that was
// released within its minimum hold is: the removals have them.
type leaseState uint8

const (
	held leaseState = iota
	released
	lost
)

// lease is the store's ticket that all handles of a re-entered lock share.
// leases.mu guards what is not constant.
type lease struct {
	book     *leases
	hold     driver.Hold
	owner    string
	storeCap time.Duration // the longest lease the store gives; 0: as asked
	began    time.Time     // of the grant
	minHold  time.Duration // of the request
	entry    *entry        // of an explicit owner, or nil
	observed *observed     // nil without observers

	state      leaseState
	handles    []*Lock
	renewers   int           // handles that want renewal
	ttl        time.Duration // what a renewal asks for
	fixedUntil time.Time     // with storeCap: the end of a lease that is longer than the store's
	validUntil time.Time     // end of the validity
	storeUntil time.Time     // by when the store's lease is over, if it ends by itself
	renewAt    time.Time     // next renewal
	renewing   bool          // a renewal is under way
	claimed    bool          // the lease is provisional: not yet as long as asked for
	due        time.Time     // when the schedule looks at it
	index      int           // in the heap of the schedule; -1: not in it

	first  Lock     // the first handle, allocated with the lease
	single [1]*Lock // backs handles while there is one
}

// errExpired is the cause of a loss that nobody told of.
var errExpired = errors.New("the lease was not renewed in time")

// newLease makes the lease of a grant. asked is Grant.Asked by the core's clock.
func newLease(a *acquisition, req driver.Request, g driver.Grant, asked, now time.Time) (*lease, *Lock) {
	l := &lease{
		book: a.c.leases, hold: req.Hold(g.Token), owner: req.Owner, storeCap: g.TTL,
		began: now, minHold: a.r.minHold, entry: a.e, ttl: a.r.ttl, index: -1,
	}
	if len(a.c.observers) > 0 {
		l.observed = &observed{ctx: context.WithoutCancel(a.parent), id: a.id}
	}
	l.handles = l.single[:0]
	l.first.c = a.c
	k := l.addHandle(&l.first, &a.r)
	if g.Claim > 0 {
		l.claim(g, asked, now)
	} else {
		l.renewedAt(startOf(&a.r, req, g, asked, now), a.r.leaseLength(), now)
	}
	return l, k
}

// claim begins a provisional lease: it is renewed when a third of it is over,
// as every lease is, so that a short hold does without. A fixed lease is to end
// at its TTL, and a minimum hold must not end with the process: they are
// renewed at once.
func (l *lease) claim(g driver.Grant, asked, now time.Time) {
	l.renewedAt(asked, min(g.Claim, l.ttl), now)
	l.claimed = true
	if l.renewers == 0 || l.minHold > 0 {
		l.renewAt = now
	}
}

// wantsRenewal is whether the next renewal may be sent. With leases.mu held.
func (l *lease) wantsRenewal() bool {
	longer := l.fixedUntil.After(l.validUntil)
	return (l.renewers > 0 || l.claimed || longer) && !l.renewing && l.renewAt.Before(l.validUntil)
}

// length is the lease that the next renewal asks for: a provisional one gives
// way to what the request asked for, a minimum hold included.
func (l *lease) length() time.Duration {
	if l.claimed {
		return max(l.ttl, l.minHold)
	}
	return l.ttl
}

// startOf is from when the caller's lease counts. Where the store's is longer
// (a session that began some time ago, a long minimum), the caller's, whose end
// the core keeps itself, may begin later, up to now: it is over before the
// store's is.
func startOf(r *request, req driver.Request, g driver.Grant, asked, now time.Time) time.Time {
	given := req.TTL
	if g.TTL > 0 {
		given = min(given, g.TTL)
	}
	if spare := given - r.leaseLength(); spare > 0 {
		return asked.Add(min(spare, max(0, now.Sub(asked))))
	}
	return asked
}

// addHandle makes k a handle. With leases.mu held, or before l is shared.
func (l *lease) addHandle(k *Lock, r *request) *Lock {
	k.lease = l
	k.renews = !r.fixed
	if k.renews {
		l.renewers++
	}
	l.handles = append(l.handles, k)
	return k
}

// renewedAt counts a lease of the given length from when it was asked for; the
// answer came now. It never shortens. With leases.mu held, or before l is shared.
func (l *lease) renewedAt(asked time.Time, length time.Duration, now time.Time) {
	if most := l.storeCap; most > 0 && length > most {
		// The store keeps it for no longer than that after each sign of life: a
		// longer lease is renewed like that until its end, so that a process that
		// was stopped meanwhile knows of its loss by the clock.
		if end := asked.Add(length - l.book.marginOf(length)); l.renewers == 0 && end.After(l.fixedUntil) {
			l.fixedUntil = end
		}
		length = most
	}
	// The next renewal comes TTL/3 after this one, or when no more than two thirds
	// of the TTL are left of a longer lease.
	l.renewAt = asked.Add(max(length/3, length-l.ttl+l.ttl/3))
	if until := asked.Add(length - l.book.marginOf(length)); until.After(l.validUntil) {
		l.validUntil = until
	}
	if until := now.Add(length); until.After(l.storeUntil) {
		l.storeUntil = until
	}
}
