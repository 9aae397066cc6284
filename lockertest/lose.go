package lockertest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lockerproject/locker/driver"
)

// errTaken is the cause of a loss that the test has asked for.
var errTaken = fmt.Errorf("%w: the test took the lock away", driver.ErrLost)

// lose takes away the held tickets of name and returns them. The holder is notified
// first, as when a lease ends.
func (d *faulty) lose(name string) (lost []driver.Hold) {
	for _, h := range d.heldOf(name) {
		if !d.live(h) {
			continue
		}
		lost = append(lost, h)
		d.notifyLoss(h, errTaken)
		_ = d.Driver.Release(context.Background(), h) // the core may have been faster
	}
	return lost
}

// holds reports whether the process holds name, as the store has it.
func (d *faulty) holds(name string) bool {
	d.mu.Lock()
	hs := maps.Values(maps.Clone(d.held))
	d.mu.Unlock()
	for h := range hs {
		if h.Name == name && d.live(h) {
			return true
		}
	}
	return false
}

// heldOf removes the tickets of name from held, and returns them.
func (d *faulty) heldOf(name string) (hs []driver.Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, h := range d.held {
		if h.Name == name {
			hs = append(hs, h)
			delete(d.held, id)
		}
	}
	return hs
}

// live reports whether the store has the ticket.
func (d *faulty) live(h driver.Hold) bool {
	queue, _ := d.Driver.Inspect(context.Background(), h.Name) // empty when closed
	return slices.ContainsFunc(queue, func(t driver.Ticket) bool { return t.ID == h.ID })
}
