package locker

import (
	"context"
	"errors"
	"fmt"
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
	byOwner  map[ownerKey]*owned  // those of explicit owners, also before they are added
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
		byID: make(map[string]*lease), byOwner: make(map[ownerKey]*owned),
	}
}

// lostEarly is the ErrLost of a ticket that is lost before its lease is in the books.
func lostEarly(cause error) error {
	return fmt.Errorf("%w before the acquisition was done: %w", ErrLost, cause)
}

// earlyLoss is a loss that the driver has reported of a ticket that is not in the books:
// its Acquire may be about to return.
type earlyLoss struct {
	cause error
	at    time.Time
}

// add adds a new lease. It fails with ErrClosed after close, and with ErrLost when the
// validity is over already or the driver has reported the loss of the ticket.
func (ls *leases) add(l *lease, now time.Time) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return ErrClosed
	}
	if !now.Before(l.validUntil) {
		return lostEarly(fmt.Errorf("the lease of %v was over when the store had answered", l.ttl))
	}
	if e, ok := ls.early[l.hold.ID]; ok {
		delete(ls.early, l.hold.ID)
		return lostEarly(e.cause)
	}
	ls.byID[l.hold.ID] = l
	if o := l.owned; o != nil {
		close(o.ended)
		*o = owned{lease: l}
	}
	ls.plan(l)
	return nil
}

// reenter adds a handle to a lease that is held, and reports whether the lease is
// shorter than the request wants.
func (ls *leases) reenter(l *lease, k *Lock, r *request) (short bool, err error) {
	now := ls.clock.now()
	ls.expire(l, now)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case l.state != held:
		return false, errEnded
	case l.hold.Shared && !r.shared:
		return false, ErrUpgrade
	case r.minHold > l.minHold:
		return false, invalid("minimum hold %v: a re-entry cannot ask for more than the first acquisition did (%v)", r.minHold, l.minHold)
	}
	renewed := l.renewers > 0
	l.waived, l.reentered = false, true
	l.addHandle(k, r)
	return r.ttl > l.ttl || (r.fixed || !renewed) && l.validUntil.Sub(now) < r.ttl-ls.marginOf(r.ttl), nil
}

// waiveMinHold sets whether the minimum hold of a lease is waived: while its caller has not got the
// lock, and nobody else has re-entered it.
func (ls *leases) waiveMinHold(l *lease, waived bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.state == held {
		l.waived = waived && !l.reentered
	}
}

// atLeast makes renewals of a lease ask for ttl or more.
func (ls *leases) atLeast(l *lease, ttl time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.ttl = max(l.ttl, ttl)
	if l.state == held {
		if at := l.validUntil.Add(l.ttl/3 - l.ttl); at.Before(l.renewAt) {
			l.renewAt = at
		}
		ls.plan(l)
	}
}

// expire reports whether a lease is lost, whoever has noticed it, and loses it if its
// validity is over. Callers that depend on the lease call it, so that a process that was
// paused does not wait for its timers.
func (ls *leases) expire(l *lease, now time.Time) (isLost bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.state == held && !now.Before(l.validUntil) {
		ls.detachExpired(l)
	}
	return l.state == lost
}

// lose ends a lease that the store has reported as lost. The ticket is removed all
// the same: the store may still have it, not held, or one of several stores its part.
// The channel is closed when the handles have ended, or if the lease had ended before.
func (ls *leases) lose(l *lease, cause error) (ended <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.state != held {
		return closed
	}
	return ls.detachLost(l, l.minHoldEnd(), cause)
}

// undoPanicked removes the ticket of an acquisition that has panicked. If there is a lease
// already, undoPanicked releases the handle that the caller did not get, so that the lease is
// not renewed for ever. Other callers may have re-entered it.
func (ls *leases) undoPanicked(h driver.Hold) {
	ls.mu.Lock()
	l := ls.byID[h.ID]
	ls.mu.Unlock()
	if l != nil {
		_ = l.first.Release(context.Background()) // the observers are notified
		return
	}
	ls.removals.add(removal{hold: h, checks: len(retry.LateChecks)})
}

// pushed is called by the driver when the store has notified it of a loss. The handles have
// ended when it returns, unless the lease had ended before.
func (ls *leases) pushed(h driver.Hold, cause error) {
	ls.mu.Lock()
	l := ls.byID[h.ID]
	if l == nil {
		ls.keepEarly(h.ID, cause)
	}
	ls.mu.Unlock()
	if l != nil {
		<-ls.lose(l, cause)
	}
}

// keepEarly keeps the loss of a ticket whose lease may be about to be added, for as long
// as an Acquire may take to get its answer. With mu held.
func (ls *leases) keepEarly(id string, cause error) {
	now := time.Now()
	if len(ls.early) >= ls.sweepAt { // at each doubling: many may come at the end of a session
		maps.DeleteFunc(ls.early, func(_ string, e earlyLoss) bool { return now.Sub(e.at) > ls.answerTimeout })
		ls.sweepAt = 2*len(ls.early) + 16
	}
	if ls.early == nil {
		ls.early = make(map[string]earlyLoss)
	}
	ls.early[id] = earlyLoss{cause, now}
}

// detach ends a lease and returns its handles, which the caller ends without the
// mutex. With mu held.
func (ls *leases) detach(l *lease, to leaseState) []*Lock {
	l.state = to
	delete(ls.byID, l.hold.ID)
	if l.owned != nil {
		delete(ls.byOwner, ownerKey{l.hold.Name, l.owner})
	}
	// The goroutine is not woken: it would be woken in every short hold.
	ls.schedule.remove(l)
	handles := l.handles
	l.handles = nil
	return handles
}

// detachExpired ends a lease whose validity is over. The ticket is removed when
// the store's lease is over too: the store may keep the ticket longer, as long as
// a session lives. With mu held.
func (ls *leases) detachExpired(l *lease) { ls.detachLost(l, l.storeUntil, errExpired) }

// detachLost ends a lease that is lost. The handles end in a goroutine of their own, because
// each waits for its contexts. Then the ticket is removed when that is due, so that nobody else
// is granted before the handles have ended, and the observers are notified. Within the minimum
// hold, which the safety margin does not shorten, Close leaves the ticket. With mu held.
func (ls *leases) detachLost(l *lease, due time.Time, cause error) (ended <-chan struct{}) {
	done, handles := make(chan struct{}), ls.detach(l, lost)
	ls.tasks.group.Add(1) // Close does not wait yet: it ends all leases first, under mu
	ls.ends.Go(func() {
		endAll(handles, ErrLost)
		ls.removals.add(removal{hold: l.hold, heapNode: heapNode{due: due}, holdUntil: l.minHoldEnd()})
		ls.tasks.done()
		close(done)
		l.queueEvent(l.context(), EventLost, ls.clock.now().Sub(l.began), cause)
		l.deliverLater()
	})
	return done
}

// endAll ends the handles of a lease that has ended.
func endAll(handles []*Lock, err error) {
	for _, k := range handles {
		k.end(err)
	}
}

// dropHandle reports whether k was the last handle of a lease that is held. Then
// it has ended the lease. It returns ErrLost or ErrReleased if the lease had ended before.
func (ls *leases) dropHandle(k *Lock) (last bool, err error) {
	l := k.lease
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case l.state == lost:
		return false, ErrLost
	case l.state != held: // Close releases the lease
		return false, ErrReleased
	case len(l.handles) == 1:
		ls.detach(l, released)
		return true, nil
	}
	l.handles = slices.DeleteFunc(l.handles, func(h *Lock) bool { return h == k })
	if k.renews {
		l.renewers--
	}
	ls.plan(l)
	return false, nil
}

// remove removes the ticket of a released lease from the store, at the latest by
// until, whether or not ctx is alive; during the minimum hold it leaves that to
// the removals. The caller delivers the event of the end, whose context is observed.
func (ls *leases) remove(ctx, observed context.Context, l *lease, until time.Time) error {
	var err error
	now := ls.clock.recent()
	if end := l.minHoldEnd(); end.After(now) {
		ls.removals.add(removal{hold: l.hold, heapNode: heapNode{due: end}, holdUntil: end})
	} else {
		err = unconfirmed(ls.removals.releaseUntil(ctx, l.hold, until))
	}
	kind := EventReleased
	if errors.Is(err, ErrLost) {
		kind = EventLost
	}
	l.queueEvent(observed, kind, ls.clock.recent().Sub(l.began), err)
	return err
}

// close ends all leases, and none can be added any more. It returns them: the
// caller removes them from the store.
func (ls *leases) close() []*lease {
	ls.mu.Lock()
	ls.closed = true
	all := make([]*lease, 0, len(ls.byID))
	var handles []*Lock
	for _, l := range ls.byID {
		all = append(all, l)
		handles = append(handles, ls.detach(l, released)...)
	}
	ls.mu.Unlock()
	endAll(handles, ErrReleased)
	return all
}
