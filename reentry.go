package locker

import (
	"context"
	"errors"
	"time"
)

// nest is what a context made by Lock.Context carries, under the Client as key:
// the handle that made it, and the nest of the context around it.
type nest struct {
	k     *Lock
	outer *nest
}

// errEnded means that the lease to re-enter has ended.
var errEnded = errors.New("the lease has ended")

// outer returns the live handle on the name that the caller's context carries. A
// request for another explicit owner does not re-enter: it queues.
func (a *acquisition) outer() *Lock {
	n, _ := a.parent.Value(a.c).(*nest)
	for ; n != nil; n = n.outer {
		l := n.k.lease
		if l.hold.Name == a.name && (!a.r.explicit || a.r.owner == l.owner) && n.k.Err() == nil {
			return n.k
		}
	}
	return nil
}

// reenter adds a handle to a lease, and lengthens the lease if the request wants
// more than is left of it.
func (a *acquisition) reenter(l *lease) (*Lock, error) {
	c, k := a.c, &Lock{c: a.c}
	short, err := c.leases.reenter(l, k, &a.r)
	if err != nil {
		return nil, err
	}
	complete := false
	defer func() { // also when an observer panics
		if !complete {
			ended, _ := k.release(a.parent, time.Now().Add(undoWait)) // the observers are notified
			l.deliverLater()
			if ended {
				c.ends.Done()
			}
		}
	}()
	if short {
		switch err := c.leases.extend(l, a.r.ttl, a.ask); {
		case errors.Is(err, ErrLost), errors.Is(err, ErrReleased):
			return nil, errEnded
		case err != nil:
			return nil, err
		}
	}
	c.leases.atLeast(l, a.r.ttl)
	if l.observed != nil {
		a.granted = true
		e := l.event(EventReentered, time.Since(a.begun), nil)
		e.ID, e.Shared, e.Waited = a.id, a.r.shared, a.waited // as in the EventWaiting that this event ends
		c.notify(a.parent, e)
	}
	complete = true
	return k, nil
}

// ownerKey identifies what an explicit owner re-enters.
type ownerKey struct{ name, owner string }

// owned is the acquisition under way of one explicit owner, for which other goroutines with
// the same owner wait, and then the lease that they re-enter. leases.mu guards what changes.
type owned struct {
	shared bool
	queued chan struct{} // closed when the store has confirmed that the ticket is queued
	ended  chan struct{} // closed when the lease is added, or the acquisition has failed
	lease  *lease        // nil until it is added, and then alone: nobody waits any more
}

// findOwned returns what the owner has, or a new acquisition, which the caller runs (mine).
func (ls *leases) findOwned(key ownerKey, shared bool) (o owned, mine *owned) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if o := ls.byOwner[key]; o != nil {
		return *o, nil
	}
	mine = &owned{shared: shared, queued: make(chan struct{}), ended: make(chan struct{})}
	ls.byOwner[key] = mine
	return o, mine
}

// failOwned ends an acquisition that findOwned returned with mine, unless its lease was added.
func (ls *leases) failOwned(key ownerKey, o *owned) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if o.lease == nil {
		delete(ls.byOwner, key)
		close(o.ended)
	}
}

// joined notifies the goroutines that wait for o that its ticket is queued.
func (ls *leases) joined(o *owned) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if o.lease != nil {
		return // a driver says so late
	}
	select {
	case <-o.queued: // queued again
	default:
		close(o.queued)
	}
}

// runOwned re-enters what the owner holds, waits for another goroutine's
// acquisition for the same owner, or queues.
func (a *acquisition) runOwned() (*Lock, error) {
	key := ownerKey{a.name, a.r.owner}
	for {
		o, mine := a.c.leases.findOwned(key, a.r.shared)
		switch {
		case mine != nil:
			return a.queueFor(key, mine)
		case o.lease != nil:
			k, err := a.reenter(o.lease)
			if !errors.Is(err, errEnded) {
				return k, err
			}
		case o.shared && !a.r.shared:
			return nil, ErrUpgrade
		default:
			if err := a.await(o); err != nil {
				return nil, err
			}
			a.expectAnswer()
		}
	}
}

// queueFor queues for an owner, whose acquisition under way is o.
func (a *acquisition) queueFor(key ownerKey, o *owned) (*Lock, error) {
	defer a.c.leases.failOwned(key, o)
	a.owned = o
	return a.queue()
}

// await waits until the acquisition of o has ended. A try waits only until its ticket is
// queued, and then fails.
func (a *acquisition) await(o owned) error {
	queued := o.queued
	for {
		select {
		case <-o.ended:
			if a.Err() != nil { // no ticket is asked for any more: Close may have waited long enough
				return a.explain(context.Cause(a))
			}
			return nil
		case <-queued:
			if a.try {
				return ErrNotAcquired
			}
			a.setQueued(true) // the driver knows nothing of this call
			a.notifyWaiting()
			queued = nil
		case <-a.Done():
			return a.explain(context.Cause(a))
		}
	}
}

// ignore returns err unless it is the sentinel.
func ignore(err, sentinel error) error {
	if errors.Is(err, sentinel) {
		return nil
	}
	return err
}
