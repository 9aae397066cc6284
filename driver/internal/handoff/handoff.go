// Package handoff hands a lock over from one ticket of a process to the next one of the same
// process when it is released, without waiting for the store's answer.
//
// It rests on the order of the queue. An exclusive ticket that was queued directly behind
// another exclusive one is the next to be granted, whatever becomes of those behind it. So when the
// process releases the first, nobody but the second can hold the lock for as long as the store keeps
// the second in the queue. The release is sent all the same, and with it the store grants the second
// ticket. What others see does not change, but for one thing: they see the first ticket until then.
//
// A waiter that is handed the lock may rely on it until the earlier of two times: until the store may
// take its ticket out of the queue because the process is silent, and until the lease of the ticket
// before it may end, since then programs that do not queue might take the lock. What else removes a
// waiting ticket from the queue, such as an operator, has to leave tickets alone that may be handed the lock: those
// that were requested less than 0.4 s ago.
//
// Threads of one node that pass a lock on among themselves are the local half of lock cohorting
// (Dice, Marathe, Shavit: "Lock Cohorting", PPoPP 2012). That overtakes the waiters of other nodes; this does not.
package handoff

import (
	"sync"
	"time"
)

// A lease that a waiter relies on counts from its request, like any other, and is to be confirmed after a third. It has
// to last for least, and at most a sixth of it may be over: the store's own grant, which is confirmed, has a
// quarter of a second to come before.
const (
	least = 1500 * time.Millisecond
	over  = 6
)

// A Waiter is an exclusive ticket of this process that waits.
type Waiter struct {
	ID     string
	Before string        // the exclusive ticket directly before it, of any process
	Asked  time.Time     // when it was requested
	Queued time.Duration // how long from then on the store keeps it in the queue, whatever becomes of this process

	held time.Time // until when Before holds at least; zero: it is not known to hold
}

// A Book has the waiters of a process, for all names. The zero value is empty. Its methods may
// be called from many goroutines.
type Book struct {
	mu   sync.Mutex
	next map[string]*Waiter // by Before
	own  map[string]*Waiter // by ID
}

// Enter adds a waiter.
func (b *Book) Enter(w *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next, b.own = make(map[string]*Waiter), make(map[string]*Waiter)
	}
	b.next[w.Before], b.own[w.ID] = w, w
}

// Leave removes a waiter, if it is there, because it waits no longer.
func (b *Book) Leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(id)
}

func (b *Book) leave(id string) {
	w := b.own[id]
	if w == nil {
		return
	}
	delete(b.own, id)
	if b.next[w.Before] == w {
		delete(b.next, w.Before)
	}
}

// Holds notes that a ticket of this process has the lock until a time at least.
func (b *Book) Holds(id string, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.next[id]; w != nil {
		w.held = until
	}
}

// Lost notes that a ticket of this process has been lost: others may have the lock.
func (b *Book) Lost(id string) { b.Holds(id, time.Time{}) }

// Release returns the waiter that has the lock now because a ticket is being released, or nil, and how long its lease is,
// from when it asked. It is called before the release is sent.
func (b *Book) Release(id string) (next *Waiter, lease time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(id) // if it is released while it waits
	w := b.next[id]
	if w == nil {
		return nil, 0
	}
	b.leave(w.ID)
	lease = min(w.Queued, w.held.Sub(w.Asked))
	if lease < least || time.Since(w.Asked) > lease/over {
		return nil, 0
	}
	return w, lease
}
