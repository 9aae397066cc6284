package locker

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// leases are what a Client holds. One goroutine looks after all of them: it
// begins renewals, and ends a lease when its validity does.
type leases struct {
	*core
	removals *removals

	mu       sync.Mutex
	closed   bool
	held     map[string]*lease // by ticket ID
	schedule leaseHeap         // the same, by when something is due
	running  bool              // there is a goroutine
	wakeAt   time.Time         // when it looks next
	wake     chan struct{}     // look now
}

func newLeases(c *core, m *removals) *leases {
	return &leases{core: c, removals: m, held: make(map[string]*lease), wake: make(chan struct{}, 1)}
}

// add takes a new lease into the book. It fails when the book was closed, and
// when the validity is over already.
func (b *leases) add(l *lease, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if !now.Before(l.validUntil) {
		return errLate
	}
	b.held[l.hold.ID] = l
	b.plan(l)
	return nil
}

// errLate says that a grant came when its lease was over.
var errLate = errors.New("the lease was over when the answer came")

// detach ends a lease in the book; with mu held. It returns the handles, which
// the caller ends without the mutex.
func (b *leases) detach(l *lease, to leaseState) []*Lock {
	l.state = to
	delete(b.held, l.hold.ID)
	if l.entry != nil {
		l.entry.forget()
	}
	b.unplan(l)
	handles := l.handles
	l.handles = nil
	return handles
}

// expire loses the lease if its validity has ended, without waiting for the
// schedule to notice: a process that was paused asks first.
func (b *leases) expire(l *lease, now time.Time) {
	b.mu.Lock()
	if l.state != held || now.Before(l.validUntil) {
		b.mu.Unlock()
		return
	}
	handles := b.detachExpired(l)
	b.mu.Unlock()
	b.tellLost(l, handles, errExpired)
}

// detachExpired ends a lease whose validity is over. Its ticket is removed once
// the store's lease is over too: a store that keeps it longer, for a session,
// needs to be told. With mu held.
func (b *leases) detachExpired(l *lease) []*Lock {
	handles := b.detach(l, lost)
	b.removals.add(removal{hold: l.hold, due: l.storeUntil})
	return handles
}

// lose ends a lease of which the store said that it is gone. Its ticket is
// removed all the same: ErrLost also says that a ticket is there and not held.
func (b *leases) lose(l *lease, cause error) {
	b.mu.Lock()
	if l.state != held {
		b.mu.Unlock()
		return
	}
	handles := b.detach(l, lost)
	b.removals.add(removal{hold: l.hold})
	b.mu.Unlock()
	b.tellLost(l, handles, cause)
}

// pushed is told by a driver that a ticket is gone.
func (b *leases) pushed(h driver.Hold, cause error) {
	b.mu.Lock()
	l := b.held[h.ID]
	b.mu.Unlock()
	if l != nil {
		b.lose(l, cause)
	}
}

func (b *leases) tellLost(l *lease, handles []*Lock, cause error) {
	for _, k := range handles {
		k.end(ErrLost)
	}
	l.tell(l.context(), EventLost, b.clock.now().Sub(l.began), cause)
}

// reenter adds a handle to a lease that is held, and reports whether the lease
// is shorter than the handle wants.
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
	return r.ttl > l.ttl || !renewed && l.validUntil.Sub(now) < r.ttl-b.marginOf(r.ttl), nil
}

// atLeast makes renewals of a held lease ask for ttl or more.
func (b *leases) atLeast(l *lease, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.ttl = max(l.ttl, ttl)
	if l.state == held {
		b.plan(l)
	}
}

// drop takes a released handle off its lease and reports whether it was the
// last: then the ticket is the caller's to remove, or is held back for the rest
// of its minimum hold.
func (b *leases) drop(k *Lock) (last bool) {
	l := k.lease
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.state != held {
		return false
	}
	if len(l.handles) == 1 {
		b.detach(l, released)
		return true
	}
	l.handles = slices.DeleteFunc(l.handles, func(h *Lock) bool { return h == k })
	if k.renews {
		l.renewers--
	}
	b.plan(l)
	return false
}

// remove takes a lease that was released off the store, until the given time
// at the latest, whether or not ctx is alive.
func (b *leases) remove(ctx context.Context, l *lease, until time.Time) error {
	var err error
	now := b.clock.recent()
	if keep := l.began.Add(l.minHold); keep.After(now) {
		b.removals.add(removal{hold: l.hold, due: keep, keep: true})
	} else {
		err = undecided(b.removals.release(ctx, l.hold, until))
	}
	kind := EventReleased
	if errors.Is(err, ErrLost) {
		kind = EventLost
	}
	l.tell(ctx, kind, b.clock.recent().Sub(l.began), err)
	return err
}

// close ends all leases and lets none be added. It returns them: the caller
// removes them from the store.
func (b *leases) close() []*lease {
	b.mu.Lock()
	b.closed = true
	all := make([]*lease, 0, len(b.held))
	var handles []*Lock
	for _, l := range b.held {
		all = append(all, l)
		handles = append(handles, b.detach(l, released)...)
	}
	b.mu.Unlock()
	for _, k := range handles {
		k.end(ErrReleased)
	}
	return all
}

// plan puts a lease where it belongs in the schedule. With mu held.
func (b *leases) plan(l *lease) {
	l.due = l.validUntil
	if l.wantsRenewal() {
		l.due = l.renewAt
	}
	if l.index < 0 {
		heap.Push(&b.schedule, l)
	} else {
		heap.Fix(&b.schedule, l.index)
	}
	if !b.running {
		now := b.clock.recent()
		b.wakeAt = now.Add(linger)
		if l.due.Before(b.wakeAt) {
			b.wakeAt = l.due
		}
		first := b.wakeAt.Sub(now)
		b.running = b.tasks.run(func() { b.watch(first) })
		return
	}
	if l.due.Before(b.wakeAt) {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// unplan takes a lease out of the schedule. The goroutine finds out when it
// looks next, so that a cycle of acquire and release need not wake it. With mu
// held.
func (b *leases) unplan(l *lease) {
	if l.index >= 0 {
		heap.Remove(&b.schedule, l.index)
	}
}

// leaseHeap orders leases by due time.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	old := *h
	n := len(old) - 1
	l := old[n]
	old[n] = nil
	*h = old[:n]
	l.index = -1
	return l
}
