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
	home   *session // whose slot it has
	slot   int
	key    string
	number uint64
	modify uint64  // of its key, as far as is known
	since  int64   // of the grant, in nanoseconds since 1970
	w      *waiter // while an Acquire waits for it
	shared bool
	held   bool
	waits  bool      // an Acquire is under way
	doubt  bool      // it may yet be created by a request that was not answered
	keep   time.Time // until when Close leaves it
	place  *ticket   // in the session to which it is being moved, or may have been; or nil
	mover  *ticket   // of a place: the ticket that is being moved
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

// detach takes the ticket out of the books: it is not in the store, or nobody
// will ask for it again. False: it was not in them.
func (d *Driver) detach(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.detachLocked(t)
}

func (d *Driver) detachLocked(t *ticket) bool {
	if d.tickets[t.id] != t {
		return false
	}
	if t.place != nil {
		d.detachLocked(t.place)
		t.place = nil
	}
	delete(d.tickets, t.id)
	t.home.freeSlot(t.name, t.slot)
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
	d.planKeeper(s.idle.Add(idleFor))
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

func (d *Driver) setDoubt(t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.doubt = true
}

// lose takes a ticket that the store does not have any more off the books.
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
