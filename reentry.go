package locker

import (
	"context"
	"errors"
	"sync"
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
		if l.hold.Name == a.name && (!a.r.owned || a.r.owner == l.owner) && n.k.Err() == nil {
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
		switch err := c.leases.extendBy(l, a.r.ttl, a.ask); {
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

// ownerKey identifies the lease that an explicit owner re-enters.
type ownerKey struct{ name, owner string }

// pending is the acquisition under way of one explicit owner. Other goroutines
// with the same owner wait for it.
type pending struct {
	shared bool
	once   sync.Once     // closes queued
	queued chan struct{} // closed when the store has confirmed that the ticket is queued
	ended  chan struct{} // closed when the acquisition has ended
}

// findOwned returns the lease that the owner holds, or its acquisition under way, or
// else a new acquisition, which the caller runs (mine).
//
// A lease is added before its acquisition leaves pending, so one of them is found.
func (ls *leases) findOwned(key ownerKey, shared bool) (l *lease, p *pending, mine bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byOwner[key]; l != nil {
		return l, nil, false
	}
	if p := ls.pending[key]; p != nil {
		return nil, p, false
	}
	p = &pending{shared: shared, queued: make(chan struct{}), ended: make(chan struct{})}
	ls.pending[key] = p
	return nil, p, true
}

// finishOwned ends an acquisition that findOwned returned with mine.
func (ls *leases) finishOwned(key ownerKey, p *pending) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.pending, key)
	close(p.ended)
}

// joined notifies the goroutines that wait for p that its ticket is queued.
func (p *pending) joined() { p.once.Do(func() { close(p.queued) }) }

// runOwned re-enters what the owner holds, waits for another goroutine's
// acquisition for the same owner, or queues.
func (a *acquisition) runOwned() (*Lock, error) {
	key := ownerKey{a.name, a.r.owner}
	for {
		l, p, mine := a.c.leases.findOwned(key, a.r.shared)
		switch {
		case mine:
			return a.queueFor(key, p)
		case l != nil:
			k, err := a.reenter(l)
			if !errors.Is(err, errEnded) {
				return k, err
			}
		case p.shared && !a.r.shared:
			return nil, ErrUpgrade
		default:
			if err := a.await(p); err != nil {
				return nil, err
			}
			a.expectAnswer()
		}
	}
}

// queueFor queues for an owner, whose acquisition under way is p.
func (a *acquisition) queueFor(key ownerKey, p *pending) (*Lock, error) {
	defer a.c.leases.finishOwned(key, p)
	a.pending = p
	return a.queue()
}

// await waits until p has ended. A try waits only until the ticket of p is queued,
// and then fails.
func (a *acquisition) await(p *pending) error {
	if !a.try {
		a.uncounted(a.notifyWaiting)
	}
	queued := p.queued
	for {
		select {
		case <-p.ended:
			if a.Err() != nil { // no ticket is asked for any more: Close may have waited long enough
				return a.explain(context.Cause(a))
			}
			return nil
		case <-queued:
			if a.try {
				return ErrNotAcquired
			}
			a.setQueued()
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
