package zookeeper

import (
	"context"

	"github.com/lockerproject/locker/driver"
)

// A turn is that of one call among those that must come one after the other.
type turn struct {
	over     chan struct{} // closed at its end
	released bool          // of an Acquire: no create may be sent any more
}

// ticketKey is the key of the turn of an Acquire, which has it until the ticket is queued. So a
// request that is repeated meanwhile queues no second ticket, and a release can wait for the
// Acquire. For the other turns, those of queues, see enqueueing.takeTurn.
func ticketKey(h driver.Hold) string { return h.ID + "/" + h.Name }

// takeTurn waits until no other call has the turn of key, which is then the caller's.
func (d *Driver) takeTurn(ctx context.Context, key string) error {
	own := &turn{over: make(chan struct{})}
	for {
		d.mu.Lock()
		other := d.turns[key]
		if other == nil {
			d.turns[key] = own
		}
		d.mu.Unlock()
		if other == nil {
			return nil
		}
		if err := d.wait(ctx, other.over); err != nil {
			return err
		}
		own.released = own.released || other.released // it was released while both were under way
	}
}

func (d *Driver) endTurn(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.turns[key].over)
	delete(d.turns, key)
}

// giveUp keeps the calls of Acquire for a ticket that are under way from sending a create, and
// waits until they have ended, or have queued the ticket.
func (d *Driver) giveUp(ctx context.Context, h driver.Hold) error {
	for {
		d.mu.Lock()
		t := d.turns[ticketKey(h)]
		if t != nil {
			t.released = true
		}
		d.mu.Unlock()
		if t == nil {
			return nil
		}
		if err := d.wait(ctx, t.over); err != nil {
			return err
		}
	}
}

// givenUp reports whether the ticket of the Acquire that has the turn was released meanwhile.
func (d *Driver) givenUp(h driver.Hold) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.turns[ticketKey(h)]
	return t != nil && t.released
}

// wait waits until c is closed.
func (d *Driver) wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return d.conn.EndError(ctx)
	case <-d.conn.Closed():
		return driver.ErrClosed
	}
}
