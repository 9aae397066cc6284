package lockertest

import (
	"context"
	"fmt"

	"github.com/lockerproject/locker/driver"
)

// errTaken is the cause of a loss that the test has asked for.
var errTaken = fmt.Errorf("%w: the test took the lock away", driver.ErrLost)

// lose takes away the held tickets of name and returns them. The holder is notified
// first, as when a lease ends.
func (d *faulty) lose(name string) []driver.Hold {
	lost := d.holdsOf(name)
	for _, h := range lost {
		d.notifyLoss(h, errTaken)
		_ = d.Driver.Release(context.Background(), h) // the core may have been faster
	}
	return lost
}

// holdsOf returns the tickets with which the process holds name, as the store has it.
func (d *faulty) holdsOf(name string) (hs []driver.Hold) {
	queue, _ := d.Driver.Inspect(context.Background(), name) // empty when closed
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range queue {
		if h, ok := d.held[t.ID]; ok {
			hs = append(hs, h)
		}
	}
	return hs
}
