package locker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// nest is what a context made by Lock.Context carries, under the Client as key:
// the handle it was made of, and those of the contexts around it.
type nest struct {
	k     *Lock
	outer *nest
}

// errEnded says that what was to be re-entered is held no more.
var errEnded = errors.New("not held any more")

// outer returns the live handle on the name that the caller's context carries. A
// request that names another owner is somebody else's and queues.
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

// reenter adds a handle to a lease, lengthening it where the request wants
// more than is left.
func (a *acquisition) reenter(l *lease) (*Lock, error) {
	c, k := a.c, &Lock{c: a.c}
	short, err := c.leases.reenter(l, k, &a.r)
	if err != nil {
		return nil, err
	}
	if short {
		if err := c.leases.extend(a, l, a.r.ttl); err != nil {
			return nil, errors.Join(err, ignore(k.Release(a.parent), ErrLost))
		}
	}
	c.leases.atLeast(l, a.r.ttl)
	if l.observed != nil {
		e := l.event(EventReentered, time.Since(a.begun), nil)
		e.ID, e.Shared, e.Waited = a.id, a.r.shared, a.waited // as of the EventWaiting that this ends
		c.tell(a.parent, e)
	}
	return k, nil
}

// owners are the names that explicit owners acquire or hold.
type owners struct {
	mu      sync.Mutex
	entries map[ownerKey]*entry
}

// ownerKey is what an explicit owner re-enters by.
type ownerKey struct{ name, owner string }

// entry is how an explicit owner stands to a name: acquiring it, or holding it.
type entry struct {
	owners *owners
	key    ownerKey
	shared bool
	queued chan struct{} // closed when the store has said that the ticket is queued
	once   sync.Once     // closes queued
	ready  chan struct{} // closed when the acquisition has ended
	lease  *lease        // guarded by owners.mu; nil while acquiring
}

func newOwners() *owners { return &owners{entries: make(map[ownerKey]*entry)} }

// enter returns the entry of an owner and its lease, if it has one; or makes
// an entry, whose acquisition is then the caller's.
func (o *owners) enter(a *acquisition) (e *entry, l *lease, mine bool) {
	key := ownerKey{a.name, a.r.owner}
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.entries[key]; e != nil {
		return e, e.lease, false
	}
	e = &entry{owners: o, key: key, shared: a.r.shared, queued: make(chan struct{}), ready: make(chan struct{})}
	o.entries[key] = e
	return e, nil, true
}

// set gives the entry its lease.
func (e *entry) set(l *lease) {
	e.owners.mu.Lock()
	defer e.owners.mu.Unlock()
	e.lease = l
}

// forget takes the entry out: its acquisition has failed, or its lease has ended.
func (e *entry) forget() {
	e.owners.mu.Lock()
	defer e.owners.mu.Unlock()
	if e.owners.entries[e.key] == e {
		delete(e.owners.entries, e.key)
	}
}

// inQueue tells those who wait for the entry that its ticket is queued.
func (e *entry) inQueue() { e.once.Do(func() { close(e.queued) }) }

// obtainOwned re-enters what the owner holds, waits for another goroutine's
// acquisition for the same owner, or begins one.
func (a *acquisition) obtainOwned() (*Lock, error) {
	for {
		e, l, mine := a.c.owners.enter(a)
		switch {
		case mine:
			return a.queueFor(e)
		case e.shared && !a.r.shared:
			return nil, ErrUpgrade
		case l != nil:
			k, err := a.reenter(l)
			if !errors.Is(err, errEnded) {
				return k, err
			}
			e.forget()
		default:
			if err := a.await(e); err != nil {
				return nil, err
			}
		}
	}
}

// queueFor acquires for e and tells those who wait for it.
func (a *acquisition) queueFor(e *entry) (*Lock, error) {
	a.e = e
	a.unpark()
	k, err := a.queue()
	if err != nil {
		e.forget()
	}
	close(e.ready)
	return k, err
}

// await waits until the acquisition of e has ended; a try only until the store
// has said that its ticket is queued.
func (a *acquisition) await(e *entry) error {
	if !a.try {
		a.park()
		a.waits()
	}
	queued := e.queued
	for {
		select {
		case <-e.ready:
			return nil
		case <-queued:
			if a.try {
				return ErrNotAcquired
			}
			a.mu.Lock()
			a.queued = true
			a.mu.Unlock()
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
