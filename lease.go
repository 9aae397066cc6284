package locker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// leaseState is what a lease is to the core:
//
//	held ──► released        the last handle was released, or the Client closed
//	  └────► lost            the store said so, or the trust window ended
//
// A lost lease whose trust window ended may still stand in the store; it is
// kept in the schedule as "ending" until the store has been told.
type leaseState uint8

const (
	held leaseState = iota
	released
	lost
)

// lease is the store's ticket that all handles of a re-entered lock share.
// Client.mu guards what is not constant.
type lease struct {
	c        *Client
	hold     driver.Hold
	owner    string
	storeCap time.Duration // the longest lease the store gives; 0: as asked
	began    time.Time     // of the grant
	entry    *entry        // of an explicit owner, or nil

	state      leaseState
	handles    []*Lock
	renewers   int           // handles that want renewal
	ttl        time.Duration // what a renewal asks for
	validUntil time.Time     // end of the trust window
	storeUntil time.Time     // by when the store's lease is over, if it ends by itself
	renewAt    time.Time     // next renewal
	renewing   bool          // a renewal is under way
	claimed    bool          // a claim is held, and not yet the whole lease
	ending     bool          // lost here, still to be removed from the store
	due        time.Time     // place in the schedule
	index      int           // place in the heap; -1: not in it

	first  Lock     // the first handle, allocated with the lease
	single [1]*Lock // backs handles while there is one
}

func newLease(c *Client, r *request, req driver.Request, g driver.Grant, now time.Time) (*lease, *Lock) {
	l := &lease{
		c: c, hold: req.Hold(g.Token), owner: req.Owner, storeCap: g.TTL,
		began: now, ttl: r.ttl, index: -1,
	}
	l.handles = l.single[:0]
	k := l.addHandle(&l.first, r)
	if g.Claim > 0 {
		l.claim(g, now)
	} else {
		l.renewedAt(startOf(r, req, g, now), r.ttl, now)
	}
	return l, k
}

// claim begins a lease with a claim: it is renewed when a third of it is over,
// as every lease is, so that a short hold does without. A fixed lease is to end
// at its TTL, and gets that at once.
func (l *lease) claim(g driver.Grant, now time.Time) {
	l.renewedAt(g.Asked, min(g.Claim, l.ttl), now)
	l.claimed = true
	if l.renewers == 0 {
		l.renewAt = now
	}
}

// wantsRenewal is whether the next renewal may be sent. With Client.mu held.
func (l *lease) wantsRenewal() bool {
	return (l.renewers > 0 || l.claimed) && !l.renewing && l.renewAt.Before(l.validUntil)
}

// startOf is from when the caller's lease counts. Where the store's is longer
// (a session that began some time ago, a long minimum), the caller's, whose end
// the core keeps itself, may begin later, up to now: it is over before the
// store's is.
func startOf(r *request, req driver.Request, g driver.Grant, now time.Time) time.Time {
	given := req.TTL
	if g.TTL > 0 {
		given = min(given, g.TTL)
	}
	if spare := given - r.ttl; spare > 0 {
		return g.Asked.Add(min(spare, max(0, now.Sub(g.Asked))))
	}
	return g.Asked
}

// addHandle makes k a handle. With Client.mu held, or before l is shared.
func (l *lease) addHandle(k *Lock, r *request) *Lock {
	k.lease = l
	k.renews = !r.fixed
	if k.renews {
		l.renewers++
	}
	l.handles = append(l.handles, k)
	return k
}

// renewedAt counts a lease of ttl from when it was asked for; the answer came
// now. It never shortens. With Client.mu held, or before l is shared.
func (l *lease) renewedAt(asked time.Time, ttl time.Duration, now time.Time) {
	if l.storeCap > 0 {
		ttl = min(ttl, l.storeCap)
	}
	l.renewAt = asked.Add(ttl / 3)
	if until := asked.Add(ttl - l.c.graceOf(ttl)); until.After(l.validUntil) {
		l.validUntil = until
	}
	if until := now.Add(ttl); until.After(l.storeUntil) {
		l.storeUntil = until
	}
}

// detach ends a lease in the core's books; with Client.mu held. It returns the
// handles, which the caller ends without the lock.
func (c *Client) detach(l *lease, to leaseState) []*Lock {
	l.state = to
	delete(c.leases, l.hold.ID)
	if l.entry != nil && c.owned[l.entry.key] == l.entry {
		delete(c.owned, l.entry.key)
	}
	c.unplan(l)
	handles := l.handles
	l.handles = nil
	return handles
}

// expire loses the lease if its trust window has ended, without waiting for
// the schedule to notice: a process that was paused asks first.
func (c *Client) expire(l *lease) {
	c.mu.Lock()
	if l.state != held || time.Now().Before(l.validUntil) {
		c.mu.Unlock()
		return
	}
	handles := c.expireLocked(l)
	c.mu.Unlock()
	c.tellLost(l, handles, errWindow)
}

// errWindow is the cause of a loss that nobody told of.
var errWindow = errors.New("the lease was not renewed in time")

// expireLocked ends a lease whose window is over, and schedules that it be
// removed from the store once the store's lease is over too: a store that
// keeps it longer, for a session, needs to be told.
func (c *Client) expireLocked(l *lease) []*Lock {
	handles := c.detach(l, lost)
	l.ending = true
	c.plan(l)
	return handles
}

// lose ends a lease of which the store said that it is gone.
func (c *Client) lose(l *lease, cause error) {
	c.mu.Lock()
	if l.state != held {
		c.mu.Unlock()
		return
	}
	handles := c.detach(l, lost)
	c.mu.Unlock()
	c.tellLost(l, handles, cause)
}

// lost is told by a driver that can push.
func (c *Client) lost(h driver.Hold, cause error) {
	c.mu.Lock()
	l := c.leases[h.ID]
	c.mu.Unlock()
	if l != nil {
		c.lose(l, cause)
	}
}

func (c *Client) tellLost(l *lease, handles []*Lock, cause error) {
	for _, k := range handles {
		k.end(ErrLost)
	}
	c.tell(context.Background(), l.event(EventLost, time.Since(l.began), cause))
}

// dropHandle takes a released handle off its lease and reports whether it was
// the last: then the lease is the caller's to remove from the store.
func (c *Client) dropHandle(k *Lock) (last bool) {
	l := k.lease
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != held {
		return false
	}
	if len(l.handles) == 1 {
		c.detach(l, released)
		return true
	}
	l.handles = slices.DeleteFunc(l.handles, func(h *Lock) bool { return h == k })
	if k.renews {
		l.renewers--
	}
	c.plan(l)
	return false
}

// releaseLease ends a lease with all its handles.
func (c *Client) releaseLease(ctx context.Context, l *lease) error {
	c.mu.Lock()
	if l.state != held {
		c.mu.Unlock()
		return ErrReleased
	}
	handles := c.detach(l, released)
	c.mu.Unlock()
	for _, k := range handles {
		k.end(ErrReleased)
	}
	return c.removeLease(ctx, l)
}

// removeLease takes a lease that was released off the store: within a bound,
// whether or not ctx is alive, and no longer than the lease may last.
func (c *Client) removeLease(ctx context.Context, l *lease) error {
	now := time.Now()
	bound := min(releaseBound, max(time.Second, l.storeUntil.Sub(now)))
	b := &bounded{Context: ctx, until: now.Add(bound)}
	defer b.close()
	err := c.remove(b, l.hold)
	if len(c.observers) > 0 {
		kind := EventReleased
		if errors.Is(err, ErrLost) {
			kind = EventLost
		}
		c.tell(context.Background(), l.event(kind, time.Since(l.began), err))
	}
	return err
}
