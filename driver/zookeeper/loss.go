package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
	"github.com/lockerproject/locker/internal/retry"
)

// watchDelay is the time before a ticket's own node is watched: once or twice that after its
// grant, or after it begins to wait. The watch reports a break, and a short
// critical section is over before one.
const watchDelay = 50 * time.Millisecond

var (
	// errRemoved is the cause of the loss of a ticket whose node is not there, although its
	// session is alive.
	errRemoved = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)
	// errLeaving refuses the grant of a ticket whose release is not confirmed yet.
	errLeaving = errors.New("the ticket was released")
	// errReleased ends an Acquire whose ticket was released before it was queued.
	errReleased = fmt.Errorf("%w: the ticket was released before it was queued", driver.ErrLost)
	// errShortened is the cause of the loss of a lease that is longer than its session is sure to last.
	errShortened = fmt.Errorf("%w: the server has shortened the session", driver.ErrLost)
	errNotQueued = fmt.Errorf("%w: no such ticket is queued", driver.ErrLost)
	// errForeign refuses the renewal of a ticket that is queued, and that this driver does not have.
	errForeign = fmt.Errorf("%w: the ticket belongs to another session, which alone can renew it", driver.ErrUnsupported)
)

// startWatching starts the background task unless it runs. With mu held.
func (d *Driver) startWatching() {
	if !d.watching {
		d.watching = d.conn.Go(d.watchTickets)
	}
}

// watchTickets is the background task that sets watches.
func (d *Driver) watchTickets(ctx context.Context) {
	for retry.Sleep(ctx, watchDelay, nil) {
		batch, more := d.takeDue()
		if !more {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, taskBound)
		_, err := each(batch, func(t *ticket) (struct{}, error) { return struct{}{}, d.watchOrLose(bounded, t) })
		cancel()
		if err != nil && !retry.Sleep(ctx, taskPause, nil) {
			return
		}
	}
}

// takeDue returns the tickets that are to be watched now. more says that there are some, or will
// be; otherwise the task ends.
func (d *Driver) takeDue() (batch []*ticket, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tickets {
		switch {
		case t.watch.Holds():
		case time.Since(t.since) < watchDelay:
			more = true
		default:
			batch = append(batch, t)
		}
	}
	d.watching = more || len(batch) > 0
	return batch, d.watching
}

// watchOrLose watches the node of a ticket. If the node has gone, the ticket is lost.
func (d *Driver) watchOrLose(ctx context.Context, t *ticket) error {
	err := d.watchTicket(ctx, t)
	if errors.Is(err, driver.ErrLost) {
		d.lose(t, err)
		return nil
	}
	return err
}

// watchTicket sets a watch on the node of a ticket of this driver. ErrLost says that the
// node has gone.
func (d *Driver) watchTicket(ctx context.Context, t *ticket) error {
	connection := d.conn.Number()
	set, err := d.conn.Watch(ctx, t.path)
	if errors.Is(err, zk.ErrNoNode) {
		return errRemoved
	}
	if err == nil {
		d.mu.Lock()
		t.watch, t.seen = set, connection
		d.mu.Unlock()
	}
	return err
}

// changed handles the deletion of a node, or the change of its data. On a user's connection
// the client drops events if more come at once, of whatever kind, than its channel has room
// for. So the background task looks for watches that have fired, whose channels drop nothing.
func (d *Driver) changed(ev zk.Event) {
	e, _ := parseEntry(nodeOf(ev.Path))
	d.mu.Lock()
	t := d.tickets[e.id]
	if t != nil && t.path != ev.Path {
		t = nil
	}
	written := t != nil && ev.Type == zk.EventNodeDataChanged
	if written {
		t.watch = zkconn.Watch{} // it may be noted only after this: takeDue sees that it has fired
	}
	if written || !d.conn.Own() {
		d.startWatching()
	}
	d.mu.Unlock()
	if t != nil && ev.Type == zk.EventNodeDeleted {
		d.lose(t, errRemoved)
	}
}

// lose forgets a ticket and notifies its holder of the loss.
func (d *Driver) lose(t *ticket, cause error) {
	if d.forget(t) {
		d.notifyLost(t.hold, cause)
	}
}

// forget removes a ticket, if there is one, from Driver.tickets. It reports whether that is a loss for its holder.
func (d *Driver) forget(t *ticket) (lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t == nil || d.tickets[t.hold.ID] != t {
		return false
	}
	delete(d.tickets, t.hold.ID)
	if t.gone != nil {
		close(t.gone)
	}
	return t.held && !t.leaving
}

// sessionOver forgets the tickets of a session that has ended, and notifies their
// holders and waiters.
func (d *Driver) sessionOver(s *zkconn.Session) {
	var theirs []*ticket
	d.mu.Lock()
	for _, t := range d.tickets {
		if t.sess == s {
			theirs = append(theirs, t)
		}
	}
	d.mu.Unlock()
	for _, t := range theirs {
		d.lose(t, zkconn.ErrExpired)
	}
}

// loseLongLeases is called when a session has come back. The server may have given it a shorter
// timeout, if its limits are not those of the server before. Then holders that count on a longer
// lease than the session gives now are notified of a loss. Their tickets stay until they are released.
func (d *Driver) loseLongLeases() {
	var lost []driver.Hold
	d.mu.Lock()
	for _, t := range d.tickets {
		if t.held && !t.leaving && t.lease > t.sess.Lease() {
			t.leaving = true
			lost = append(lost, t.hold)
		}
	}
	d.mu.Unlock()
	for _, h := range lost {
		d.notifyLost(h, errShortened)
	}
}

func (d *Driver) notifyLost(h driver.Hold, cause error) {
	if d.lost != nil {
		d.lost(h, cause)
	}
}
