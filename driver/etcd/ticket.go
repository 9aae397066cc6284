package etcd

import (
	"time"

	"github.com/lockerproject/locker/driver"
)

// state is what a ticket of this driver is:
//
//	joining ──► waiting ──► held ──► leaving ──► gone
//	   │           └──────────┴───────────────────┘  the store has lost it
//	   └──► doomed ──► gone
//
// A ticket is doomed when nobody wants it any more and the store has not said
// that it is gone: the answer to its put, or to its deletion, never came.
type state uint8

const (
	joining state = iota
	waiting
	held
	leaving
	doomed
	gone
)

// ticket is one ticket that this driver has put in a line. Driver.mu guards
// what is not constant.
type ticket struct {
	line   *line
	id     string
	slot   int
	key    string
	shared bool
	limit  int
	ttl    time.Duration // as asked for
	stays  time.Duration // Request.MinHold
	again  bool          // an earlier put of the same ID may still be under way

	ended chan struct{} // of a waiter: closed when it is granted, or lost

	settled  bool          // the put was answered, or given up
	answered chan struct{} // closed when it is; nil while nobody waits for that

	state   state
	rev     int64     // number; 0 until the put was answered
	lease   *lease    // on which the key lives
	since   time.Time // of the grant
	waited  bool      // before the grant
	watch   *watch    // of the line, when the put was sent
	putErr  error
	unsure  bool  // the key may be on another lease, since a move was not answered
	adrift  bool  // nobody waits for the answer to the put
	unknown bool  // the put was never answered
	absent  bool  // the store has answered a deletion
	loose   int32 // deletions of the key, whatever stands there, that were not answered
}

// whenAnswered returns a channel that is closed once the put was answered, or
// given up. With mu held.
func (t *ticket) whenAnswered() <-chan struct{} {
	switch {
	case t.settled:
		return closed
	case t.answered == nil:
		t.answered = make(chan struct{})
	}
	return t.answered
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (t *ticket) hold() driver.Hold {
	return driver.Hold{Name: t.line.name, ID: t.id, Token: uint64(t.rev), Shared: t.shared}
}

// line is a name in which this driver has a ticket, or which it watches.
type line struct {
	d      *Driver
	name   string
	prefix string

	base  int32     // the first slot
	used  int32     // slots with a ticket
	slots []*ticket // by slot, from base; nil: free, or never used again
	free  []int     // of slots

	waiters map[int64]*ticket // by number
	watch   *watch            // while somebody waits, and a little longer
}

// enroll makes a ticket of a request, in a slot of its line. With mu held.
func (d *Driver) enroll(r driver.Request, l *lease, again bool) *ticket {
	ln := d.lines[r.Name]
	first := ln == nil
	if first {
		ln = &line{d: d, name: r.Name, prefix: d.linePrefix(r.Name), base: int32(d.slotBase)}
		d.lines[r.Name] = ln
	}
	t := &ticket{
		line: ln, id: r.ID, shared: r.Shared, limit: r.Limit, ttl: r.TTL, stays: r.MinHold,
		lease: l, again: again,
	}
	if n := len(ln.free); n > 0 {
		t.slot = ln.free[n-1]
		ln.free = ln.free[:n-1]
		ln.slots[t.slot-int(ln.base)] = t
	} else {
		t.slot = int(ln.base) + len(ln.slots)
		ln.slots = append(ln.slots, t)
	}
	ln.used++
	t.key = d.slotKey(ln.prefix, t.shared, t.slot)
	if first { // later it is read without mu
		ln.prefix = t.key[:len(ln.prefix)] // one string is enough for both
	}
	d.tickets[t.id] = t
	return t
}

// forget takes a ticket that is not in the store off the books: its slot is
// free again, unless a deletion of whatever stands there may be on its way yet.
// With mu held.
func (d *Driver) forget(t *ticket) {
	if t.state == gone {
		return
	}
	d.unseat(t)
	if t.state == doomed {
		t.lease.doomed--
	} else {
		d.detach(t.lease)
	}
	t.state = gone
	if d.tickets[t.id] == t {
		delete(d.tickets, t.id)
	}
	ln := t.line
	ln.slots[t.slot-int(ln.base)] = nil
	if t.loose == 0 {
		ln.free = append(ln.free, t.slot)
	} else {
		d.slotBase = max(d.slotBase, t.slot+1) // nor in a line of this name to come
	}
	ln.used--
	ln.close()
}

// unseat takes a ticket off those who wait, and tells it. With mu held.
func (d *Driver) unseat(t *ticket) {
	if t.state != waiting {
		return
	}
	delete(t.line.waiters, t.rev)
	t.lease.waiting--
	t.line.rest()
	close(t.ended)
}

// doom gives up on a ticket of which the store has not said whether it is in
// line. Its lease takes no more tickets: it is revoked when the last has left,
// and until then every keep-alive deletes what is doomed. With mu held.
func (d *Driver) doom(t *ticket) {
	if t.state == doomed || t.state == gone {
		return
	}
	d.unseat(t)
	t.state = doomed
	t.lease.doomed++
	d.retire(t.lease)
	d.detach(t.lease)
}

// lose takes a ticket off the books that the store has lost. With mu held; the
// holder is told when mu ends.
func (d *Driver) lose(t *ticket, cause error) {
	if t.state == held {
		d.notices = append(d.notices, notice{t.hold(), cause})
	}
	d.forget(t)
}

// find returns the ticket of a hold. With mu held.
func (d *Driver) find(h driver.Hold) *ticket {
	t := d.tickets[h.ID]
	if t == nil || t.line.name != h.Name || t.state == gone ||
		h.Token != 0 && t.rev != 0 && h.Token != uint64(t.rev) {
		return nil
	}
	return t
}

// close takes a line off the books that nothing refers to. With mu held.
func (ln *line) close() {
	if ln.used == 0 && ln.watch == nil && ln.d.lines[ln.name] == ln {
		delete(ln.d.lines, ln.name)
	}
}

// own returns the ticket behind a key of the line, if it is one of this
// driver's. With mu held.
func (ln *line) own(key string) *ticket {
	slot, ok := ln.d.ownSlot(ln.prefix, key)
	i := slot - int(ln.base)
	if !ok || i < 0 || i >= len(ln.slots) || ln.slots[i] == nil || ln.slots[i].key != key {
		return nil
	}
	return ln.slots[i]
}

// deleted takes notice of a deletion. With mu held; a loss is told when mu
// ends.
func (d *Driver) deleted(ln *line, key string, at int64) {
	if ln.watch != nil {
		ln.watch.view.remove(key, at)
	}
	t := ln.own(key)
	if t != nil && (t.state == waiting || t.state == held) && t.rev < at {
		d.lose(t, errDeleted)
	}
}
