package consul

import (
	"time"

	"github.com/lockerproject/locker/driver"
)

// A ticket is what the driver remembers of one that it has, or may have, in the
// store. Driver.mu guards what is not constant.
type ticket struct {
	name string
	id   string

	s      *session
	first  *session // in which it was created: its key and slot are of that one
	slot   int
	key    string
	number uint64
	modify uint64  // of its key, as far as is known
	since  int64   // of the grant, in nanoseconds since 1970
	w      *waiter // while an Acquire waits for it
	shared bool
	held   bool
	waits  bool      // an Acquire is under way
	unsure bool      // a request that was not answered may yet create it
	keep   time.Time // until when Close leaves it
	// While it is being moved to another session, or may have been, target stands for
	// it there.
	target, targetOf *ticket
}

// entry is the ticket as the store has it. With mu held.
func (t *ticket) entry() entry {
	return entry{
		pair:  pair{Key: t.key, Session: t.s.id, CreateIndex: t.number, ModifyIndex: t.modify},
		value: value{ID: t.id, Shared: t.shared},
	}
}

// tellLost tells whoever has the ticket that it is gone from the store.
func (d *Driver) tellLost(t *ticket, cause error) {
	d.mu.Lock()
	held, number := t.held, t.number
	d.mu.Unlock()
	d.endWait(t, cause)
	d.left(t.name, number)
	if held && d.tell != nil {
		d.tell(driver.Hold{Name: t.name, ID: t.id, Token: number, Shared: t.shared}, cause)
	}
}

// endWait ends the Acquire that waits for the ticket, if there is one.
func (d *Driver) endWait(t *ticket, cause error) {
	d.mu.Lock()
	w := t.w
	d.mu.Unlock()
	if w != nil {
		w.end(cause)
	}
}

// detach forgets the ticket: it is not in the store, or nobody will ask for it
// again. False: it was not known.
func (d *Driver) detach(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.detachLocked(t)
}

func (d *Driver) detachLocked(t *ticket) bool {
	if d.tickets[t.id] != t {
		return false
	}
	if t.target != nil {
		d.detachLocked(t.target)
		t.target = nil
	}
	delete(d.tickets, t.id)
	t.first.freeSlot(t.name, t.slot)
	delete(t.s.tickets, t.id)
	d.unwait(t)
	d.settle(t.s)
	return true
}

// unwait notes that no Acquire is under way for t. With mu held.
func (d *Driver) unwait(t *ticket) {
	if t.waits {
		t.waits = false
		t.s.waiting--
	}
}

// settle decides what becomes of a session that a ticket has left. With mu
// held.
func (d *Driver) settle(s *session) {
	if len(s.tickets) > 0 || s.ended || d.closed { // Close destroys them all
		return
	}
	s.idle = time.Now()
	if s.retired {
		d.forget(s)
		d.destroyLocked(s)
		return
	}
	d.tendAt(s.idle.Add(idleFor))
}

// holdLocked notes that a ticket is granted. With mu held.
func (d *Driver) holdLocked(t *ticket) {
	if !t.held {
		t.held = true
		t.since = time.Now().UnixNano()
		t.w = nil
		d.unwait(t)
	}
}

func (d *Driver) setUnsure(t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.unsure = true
}

// lose forgets a ticket that the store does not have any more, and says so.
func (d *Driver) lose(t *ticket, cause error) {
	if d.detach(t) {
		d.tellLost(t, cause)
	}
}

// ticketOf returns what is known of an ID; nil: nothing.
func (d *Driver) ticketOf(id string) *ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tickets[id]
}
