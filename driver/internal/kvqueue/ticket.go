package kvqueue

import (
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// state is where a ticket is in the diagram of the package comment.
type state uint8

const (
	putting state = iota
	waiting
	held
	leaving // no caller wants it, unless its request is repeated
	orphan  // its put was not answered
	gone
)

// ticket is one ticket of this driver. Engine.mu guards the fields that change.
type ticket struct {
	Ticket

	queue *queue
	slot  int32
	stays time.Duration // the minimum hold

	state    state
	deleting bool   // a deletion was sent
	waited   bool   // before its grant
	seen     uint64 // its entry was there, or was put, after this (Engine.tick)
	session  *session
	since    time.Time // of the grant, or of queueing
	until    time.Time // when a lease that nobody renews is over; or zero
	lost     error     // why it has gone without its driver; or nil

	callers int           // calls of Acquire that are under way
	ended   chan struct{} // closed when the wait is over, whatever the outcome
	woken   bool          // ended is closed
}

func (t *ticket) hold() driver.Hold {
	return driver.Hold{Name: t.Name, ID: t.ID, Token: t.Number, Shared: t.Shared}
}

// kept reports whether Close leaves a ticket because of its minimum hold.
func (t *ticket) kept() bool { return t.state == held && time.Since(t.since) < t.stays }

// unsure reports whether the watch for losses of the ticket's session has reported something
// since the ticket's entry was seen. With mu held.
func (t *ticket) unsure() bool { return t.seen < t.session.reported }

// queue is the queue of a name in which this driver has tickets, or which it watches.
type queue struct {
	e       *Engine
	name    string
	slots   []*ticket // nil: free
	free    []int32   // free slots, the latest last
	waiters []*ticket // by number
	watcher *watcher  // while there are waiters, and a little longer
}

// enroll makes a ticket of a request. With mu held.
func (e *Engine) enroll(r *driver.Request, s *session) *ticket {
	q := e.queues[r.Name]
	if q == nil {
		q = &queue{e: e, name: r.Name}
		e.queues[r.Name] = q
	}
	t := &ticket{
		Ticket: Ticket{Name: q.name, ID: r.ID, Session: s.id, Entry: Entry{Shared: r.Shared, Limit: r.Limit}},
		queue:  q, slot: q.takeSlot(), session: s, stays: r.MinHold, seen: e.tick(),
	}
	t.Key = e.store.Key(t.Name, s.id, int(t.slot), t.Shared)
	q.slots[t.slot] = t
	e.tickets[t.ID] = t
	e.keys[t.Key] = t
	return t
}

// takeSlot returns a free slot: the one that was used last, or a new one.
func (q *queue) takeSlot() (slot int32) {
	if n := len(q.free); n > 0 {
		slot, q.free = q.free[n-1], q.free[:n-1]
		return slot
	}
	q.slots = append(q.slots, nil)
	return int32(len(q.slots) - 1)
}

// find returns the ticket of a hold. With mu held.
func (e *Engine) find(h driver.Hold) *ticket {
	t := e.tickets[h.ID]
	if t == nil || t.Name != h.Name || h.Token != 0 && t.Number != 0 && h.Token != t.Number {
		return nil
	}
	return t
}

// join counts a call of Acquire for a ticket, whose session is kept alive meanwhile. With mu held.
func (e *Engine) join(t *ticket) {
	t.callers++
	t.session.needed++
	e.plan(t.session.sent.Add(t.session.ttl / keepPart))
}

// leave ends what join began. A ticket for which no call waits any more does not wait itself.
func (e *Engine) leave(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.session.needed--
	if t.callers--; t.callers == 0 && t.state == waiting {
		e.unwait(t)
		t.state = leaving
	}
}

// wait makes a ticket a waiter. With mu held.
func (e *Engine) wait(t *ticket) {
	q := t.queue
	t.state, t.since = waiting, time.Now()
	t.ended, t.woken = make(chan struct{}), false
	i, _ := q.position(t.Number)
	q.waiters = slices.Insert(q.waiters, i, t)
	if q.watcher == nil {
		q.watcher = newWatcher(q)
		e.spawn(q.watcher.run)
	}
}

// unwait ends the wait of a ticket, if it waits. With mu held.
func (e *Engine) unwait(t *ticket) {
	if t.state == waiting {
		e.unqueue(t)
		e.wake(t)
	}
}

// wake ends the wait of the calls of Acquire for a ticket. With mu held.
func (e *Engine) wake(t *ticket) {
	if t.ended != nil && !t.woken {
		t.woken = true
		close(t.ended)
	}
}

// unqueue takes a ticket that waits out of the queue. With mu held.
func (e *Engine) unqueue(t *ticket) {
	q := t.queue
	if i, ok := q.position(t.Number); ok {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	if len(q.waiters) == 0 {
		q.waiters = nil
		q.watcher.idle.Reset(linger)
	}
	q.watcher.reconsider()
}

// granted makes a ticket a holder. With mu held.
func (e *Engine) granted(t *ticket) {
	t.waited = t.state == waiting
	e.unwait(t)
	t.state, t.since = held, time.Now()
}

// forget forgets a ticket that is not in the store, and never will be. With mu
// held.
func (e *Engine) forget(t *ticket) {
	if t.state == gone {
		return
	}
	e.unwait(t)
	e.wake(t) // one that was released has waited until the store had confirmed it
	t.state = gone
	e.detach(t.session)
	if e.tickets[t.ID] == t {
		delete(e.tickets, t.ID)
	}
	delete(e.keys, t.Key)
	q := t.queue
	q.slots[t.slot] = nil
	q.free = append(q.free, t.slot)
	q.close()
}

// lose forgets a ticket that has gone from the store. unlock notifies its holder. With mu
// held.
func (e *Engine) lose(t *ticket, cause error) {
	t.lost = cause
	if t.state == held {
		e.notices = append(e.notices, notice{t.hold(), cause})
	}
	e.forget(t)
}

// position returns the index of the waiter with a number, or for it. With mu held.
func (q *queue) position(number uint64) (int, bool) {
	return slices.BinarySearchFunc(q.waiters, number, func(t *ticket, number uint64) int {
		switch {
		case t.Number < number:
			return -1
		case t.Number > number:
			return 1
		}
		return 0
	})
}

// removed notes that an entry has gone. A ticket of this driver is lost with its
// entry. With mu held.
func (q *queue) removed(g Gone) {
	if q.watcher != nil {
		q.watcher.view.remove(g)
	}
	t := q.e.keys[g.Key]
	if t != nil && t.Number != 0 && t.Number < g.Before && (t.state == waiting || t.state == held) {
		q.e.lose(t, errDeleted)
	}
}

// deleted notes that an entry was found to have gone, and others perhaps with it. With mu held.
func (q *queue) deleted(g Gone) {
	q.removed(g)
	q.reread()
}

// reread has the queue read, if somebody waits. With mu held.
func (q *queue) reread() {
	if len(q.waiters) > 0 { // otherwise the next one is put with a reading
		q.watcher.stale = true
		q.watcher.reconsider()
	}
}

// close forgets a queue that nothing refers to. With mu held.
func (q *queue) close() {
	if len(q.free) == len(q.slots) && q.watcher == nil && q.e.queues[q.name] == q {
		delete(q.e.queues, q.name)
	}
}
