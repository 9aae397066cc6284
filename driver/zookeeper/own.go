package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// watchDelay is how long a ticket is held, or waits, before its own node is
// watched. The watch tells of a break, and a short critical section is over
// before one.
const watchDelay = 100 * time.Millisecond

// errRemoved is why a ticket is lost whose node is not there, though its session
// is.
var errRemoved = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// watchLater has t's own node watched, soon. With mu held.
func (d *Driver) watchLater(t *ticket) {
	if t.queued {
		return
	}
	t.queued = true
	d.chores.unwatched = append(d.chores.unwatched, t)
	if !d.chores.watching {
		d.chores.watching = d.spawn(d.watchAll)
	}
}

func (d *Driver) watchAll() {
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
		ctx, cancel := context.WithTimeout(context.Background(), choreBound)
		_, err := each(ctx, d, batch, func(t *ticket) (struct{}, error) { return struct{}{}, d.watchOrTell(ctx, t) })
		cancel()
		if err != nil && !d.pause(context.Background(), retryMost) {
			return
		}
	}
}

// takeUnwatched returns the tickets that are due, or how long there is to wait;
// neither: there are none, and the chore has ended.
func (d *Driver) takeUnwatched() (batch []*ticket, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := d.chores.unwatched[:0]
	for _, t := range d.chores.unwatched {
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
	clear(d.chores.unwatched[len(rest):])
	d.chores.unwatched = rest
	if len(rest) == 0 && len(batch) == 0 {
		d.chores.unwatched = nil
		d.chores.watching = false
	}
	return batch, wait
}

// watchOrTell watches t's node; if it is gone, the loss is told. When the
// server does not answer it is tried again later.
func (d *Driver) watchOrTell(ctx context.Context, t *ticket) error {
	err := d.watchOwn(ctx, t)
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

// watchOwn sets a watch on the node of a ticket of ours; ErrLost: it is gone.
func (d *Driver) watchOwn(ctx context.Context, t *ticket) error {
	link := d.links.now()
	ch, err := call(ctx, d, func() (<-chan zk.Event, error) {
		_, _, ch, err := d.conn.GetW(t.path)
		return ch, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return errRemoved
	}
	if err == nil {
		d.mu.Lock()
		t.watch, t.link = ch, link
		d.mu.Unlock()
	}
	return err
}

// changed hears that a node was deleted, or its data changed.
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

// lose takes a ticket off the books and tells of its loss.
func (d *Driver) lose(t *ticket, cause error) {
	d.mu.Lock()
	ours := d.tickets[t.hold.ID] == t
	if ours {
		delete(d.tickets, t.hold.ID)
		d.tidyLater(parentOf(t.path))
		if t.gone != nil {
			close(t.gone)
		}
	}
	held := t.held
	d.mu.Unlock()
	if ours && held {
		d.tellLost(t.hold, cause)
	}
}
