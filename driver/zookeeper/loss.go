package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// watchDelay is how long a ticket is held, or waits, before its own node is watched. The
// watch tells of a break, and a short critical section is over before one.
const watchDelay = 100 * time.Millisecond

// errRemoved is the cause of the loss of a ticket whose node is not there, though its
// session is.
var errRemoved = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// watchLater has the node of a ticket watched soon. With mu held.
func (d *Driver) watchLater(t *ticket) {
	if t.queued {
		return
	}
	t.queued = true
	d.tasks.unwatched = append(d.tasks.unwatched, t)
	if !d.tasks.watching {
		d.tasks.watching = d.spawn(d.watchTickets)
	}
}

// watchTickets is the background task.
func (d *Driver) watchTickets() {
	for {
		batch, wait := d.takeUnwatched()
		if len(batch) == 0 && wait == 0 {
			return
		}
		if len(batch) == 0 {
			if !d.pause(context.Background(), wait) {
				return
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), taskBound)
		_, err := each(ctx, d, batch, func(t *ticket) (struct{}, error) { return struct{}{}, d.watchOrLose(ctx, t) })
		cancel()
		if err != nil && !d.pause(context.Background(), retryMost) {
			return
		}
	}
}

// takeUnwatched returns the tickets that are due, or how long to wait for the next. If
// it returns neither there are none, and the task ends.
func (d *Driver) takeUnwatched() (batch []*ticket, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := d.tasks.unwatched[:0]
	for _, t := range d.tasks.unwatched {
		switch left := watchDelay - time.Since(t.since); {
		case d.tickets[t.hold.ID] != t || t.watch != nil:
			t.queued = false
		case left <= 0:
			t.queued = false
			batch = append(batch, t)
		default:
			rest = append(rest, t)
			if wait == 0 || left < wait {
				wait = left
			}
		}
	}
	clear(d.tasks.unwatched[len(rest):])
	d.tasks.unwatched = rest
	if len(rest) == 0 && len(batch) == 0 {
		d.tasks.unwatched = nil
		d.tasks.watching = false
	}
	return batch, wait
}

// watchOrLose watches the node of a ticket. If the node has gone the ticket is lost; if
// the server does not answer it is asked again later.
func (d *Driver) watchOrLose(ctx context.Context, t *ticket) error {
	err := d.watchTicket(ctx, t)
	switch {
	case errors.Is(err, driver.ErrLost):
		d.lose(t, err)
		return nil
	case err != nil:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.watchLater(t)
	}
	return err
}

// watchTicket sets a watch on the node of a ticket of this driver. ErrLost says that the
// node has gone.
func (d *Driver) watchTicket(ctx context.Context, t *ticket) error {
	connection := d.reconnects.now()
	ch, err := call(ctx, d, func() (<-chan zk.Event, error) {
		_, _, ch, err := d.conn.GetW(t.path)
		return ch, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return errRemoved
	}
	if err == nil {
		d.mu.Lock()
		t.watch, t.watchedOn = ch, connection
		d.mu.Unlock()
	}
	return err
}

// changed handles the deletion of a node, or the change of its data.
func (d *Driver) changed(ev zk.Event) {
	e, ok := parseEntry(nodeOf(ev.Path))
	if !ok {
		return
	}
	d.mu.Lock()
	t := d.tickets[e.id]
	if t == nil || t.path != ev.Path {
		d.mu.Unlock()
		return
	}
	if ev.Type == zk.EventNodeDataChanged {
		if t.watch != nil {
			t.watch = nil
			d.watchLater(t)
		}
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.lose(t, errRemoved)
}

// lose takes a ticket off the books and notifies its holder of the loss.
func (d *Driver) lose(t *ticket, cause error) {
	d.mu.Lock()
	ours := d.tickets[t.hold.ID] == t
	if ours {
		delete(d.tickets, t.hold.ID)
		d.removeLater(parentOf(t.path))
		if t.gone != nil {
			close(t.gone)
		}
	}
	held := t.held
	d.mu.Unlock()
	if ours && held {
		d.notifyLost(t.hold, cause)
	}
}
