package locker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// leases are the leases of a Client. One goroutine (renewal.go) renews them, and
// ends each when its validity ends.
//
// A lease that ends is detached first: no method finds it any more. Its handles
// and observers are notified afterwards, without the mutex.
type leases struct {
	*core
	removals *removals

	mu       sync.Mutex // taken before removals.mu
	closed   bool
	byID     map[string]*lease    // by the ticket's ID
	byOwner  map[ownerKey]*lease  // the reentrant ones
	early    map[string]earlyLoss // by the ticket's ID: losses of leases that are not added yet
	sweepAt  int                  // the length at which old ones are removed from early
	schedule schedule[*lease]     // all, by when they are to be renewed, or end
	running  bool                 // the goroutine runs
	wakeAt   time.Time            // when it wakes next
	wake     chan struct{}        // wakes it now
}

func newLeases(c *core, m *removals) *leases {
	return &leases{
		core: c, removals: m, wake: make(chan struct{}, 1),
		byID: make(map[string]*lease), byOwner: make(map[ownerKey]*lease),
	}
}

// errLate means that a grant came when its lease was over.
var errLate = errors.New("the lease was over when the answer came")

// earlyLoss is a loss that the driver has reported of a ticket that is not in the books:
// its Acquire may be about to return.
type earlyLoss struct {
	cause error
	at    time.Time
}

// add adds a new lease. It fails after close, when the validity is over already, and
// when the driver has reported the loss of the ticket.
func (b *leases) add(l *lease, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if !now.Before(l.validUntil) {
		return errLate
	}
	if e, ok := b.early[l.hold.ID]; ok {
		delete(b.early, l.hold.ID)
		return e.cause
	}
	b.byID[l.hold.ID] = l
	if l.reentrant {
		b.byOwner[ownerKey{l.hold.Name, l.owner}] = l
	}
	b.plan(l)
	return nil
}

// heldBy returns the lease that an explicit owner re-enters, or nil.
func (b *leases) heldBy(key ownerKey) *lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byOwner[key]
}

// reenter adds a handle to a lease that is held, and reports whether the lease is
// shorter than the request wants.
func (b *leases) reenter(l *lease, k *Lock, r *request) (short bool, err error) {
	now := b.clock.now()
	b.expire(l, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case l.state != held:
		return false, errEnded
	case l.hold.Shared && !r.shared:
		return false, ErrUpgrade
	case r.minHold > l.minHold:
		return false, invalid("minimum hold %v: a re-entry cannot ask for more than the first acquisition did (%v)", r.minHold, l.minHold)
	}
	renewed := l.renewers > 0
	l.addHandle(k, r)
	return r.ttl > l.ttl || (r.fixed || !renewed) && l.validUntil.Sub(now) < r.ttl-b.marginOf(r.ttl), nil
}

// atLeast makes renewals of a lease ask for ttl or more.
func (b *leases) atLeast(l *lease, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.ttl = max(l.ttl, ttl)
	if l.state == held {
		b.plan(l)
	}
}

// expire reports whether a lease is lost, whoever has noticed it, and loses it if its
// validity is over. Callers that depend on the lease call it, so that a process that was
// paused does not wait for its timers.
func (b *leases) expire(l *lease, now time.Time) (isLost bool) {
	b.mu.Lock()
	if l.state != held || now.Before(l.validUntil) {
		defer b.mu.Unlock()
		return l.state == lost
	}
	handles := b.detachExpired(l)
	b.mu.Unlock()
	endAll(handles, ErrLost)
	b.queueLost(l, errExpired)
	return true
}

// lose ends a lease that the store has reported as lost. The ticket is removed all
// the same: the store may still have it, not held.
func (b *leases) lose(l *lease, cause error) {
	b.mu.Lock()
	if l.state != held {
		b.mu.Unlock()
		return
	}
	handles := b.detach(l, lost)
	b.removals.add(removal{hold: l.hold})
	b.mu.Unlock()
	endAll(handles, ErrLost)
	b.queueLost(l, cause)
}

// abandon removes the ticket of an acquisition that has panicked. If there is a lease
// already, abandon releases the handle that the caller did not get, so that the lease is
// not renewed for ever. Other callers may have re-entered it.
func (b *leases) abandon(h driver.Hold) {
	b.mu.Lock()
	l := b.byID[h.ID]
	b.mu.Unlock()
	if l != nil {
		_ = l.first.Release(context.Background()) // the observers are notified
		return
	}
	b.removals.add(removal{hold: h, checks: len(retry.LateChecks)})
}

// pushed is called by the driver when the store has notified it of a loss.
func (b *leases) pushed(h driver.Hold, cause error) {
	b.mu.Lock()
	l := b.byID[h.ID]
	if l == nil {
		b.keepEarly(h.ID, cause)
	}
	b.mu.Unlock()
	if l != nil {
		b.lose(l, cause)
	}
}

// keepEarly keeps the loss of a ticket whose lease may be about to be added, for as long
// as an Acquire may take to get its answer. With mu held.
func (b *leases) keepEarly(id string, cause error) {
	now := time.Now()
	if len(b.early) >= b.sweepAt { // at each doubling: many may come at the end of a session
		maps.DeleteFunc(b.early, func(_ string, e earlyLoss) bool { return now.Sub(e.at) > b.answerTimeout })
		b.sweepAt = 2*len(b.early) + 16
	}
	if b.early == nil {
		b.early = make(map[string]earlyLoss)
	}
	b.early[id] = earlyLoss{cause, now}
}

// detach ends a lease and returns its handles, which the caller ends without the
// mutex. With mu held.
func (b *leases) detach(l *lease, to leaseState) []*Lock {
	l.state = to
	delete(b.byID, l.hold.ID)
	if l.reentrant {
		delete(b.byOwner, ownerKey{l.hold.Name, l.owner})
	}
	// The goroutine is not woken: it would be woken in every short hold.
	b.schedule.remove(l)
	handles := l.handles
	l.handles = nil
	return handles
}

// detachExpired ends a lease whose validity is over. The ticket is removed when
// the store's lease is over too: the store may keep the ticket longer, as long as
// a session lives. Within the minimum hold, which the safety margin does not shorten, Close
// leaves the ticket too. With mu held.
func (b *leases) detachExpired(l *lease) []*Lock {
	handles := b.detach(l, lost)
	b.removals.add(removal{hold: l.hold, planned: planned{due: l.storeUntil}, holdUntil: l.began.Add(l.minHold)})
	return handles
}

// endAll ends the handles of a lease that has ended.
func endAll(handles []*Lock, err error) {
	for _, k := range handles {
		k.end(err)
	}
}

// queueLost has the observers notified of the loss of a lease whose handles have ended.
func (b *leases) queueLost(l *lease, cause error) {
	l.queueEvent(l.context(), EventLost, b.clock.now().Sub(l.began), cause)
	l.deliverLater()
}

// release removes a handle that has ended from its lease. After the last one the
// ticket is removed; see remove.
func (b *leases) release(ctx context.Context, k *Lock, until time.Time) (last bool, err error) {
	last, err = b.dropHandle(k)
	if last {
		err = b.remove(ctx, k.lease, until)
	}
	return last, err
}

// dropHandle reports whether k was the last handle of a lease that is held. Then
// it has ended the lease. It returns ErrLost if the lease was lost before.
func (b *leases) dropHandle(k *Lock) (last bool, err error) {
	l := k.lease
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case l.state == lost:
		return false, ErrLost
	case l.state != held:
		return false, nil
	case len(l.handles) == 1:
		b.detach(l, released)
		return true, nil
	}
	l.handles = slices.DeleteFunc(l.handles, func(h *Lock) bool { return h == k })
	if k.renews {
		l.renewers--
	}
	b.plan(l)
	return false, nil
}

// remove removes the ticket of a released lease from the store, at the latest by
// until, whether or not ctx is alive; during the minimum hold it leaves that to
// the removals. The caller delivers the event of the end.
func (b *leases) remove(ctx context.Context, l *lease, until time.Time) error {
	var err error
	now := b.clock.recent()
	if end := l.began.Add(l.minHold); end.After(now) {
		b.removals.add(removal{hold: l.hold, planned: planned{due: end}, holdUntil: end})
	} else {
		err = unconfirmed(b.removals.release(ctx, l.hold, until))
	}
	kind := EventReleased
	if errors.Is(err, ErrLost) {
		kind = EventLost
	}
	l.queueEvent(ctx, kind, b.clock.recent().Sub(l.began), err)
	return err
}

// close ends all leases, and none can be added any more. It returns them: the
// caller removes them from the store.
func (b *leases) close() []*lease {
	b.mu.Lock()
	b.closed = true
	all := make([]*lease, 0, len(b.byID))
	var handles []*Lock
	for _, l := range b.byID {
		all = append(all, l)
		handles = append(handles, b.detach(l, released)...)
	}
	b.mu.Unlock()
	for _, k := range handles {
		k.end(ErrReleased)
	}
	return all
}
