package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer. One request shows that the session is alive.
// The watches on the tickets' nodes, whose events come before its answer, show that the
// nodes are there. On each new connection the nodes are looked for once, since the client
// sets the watches again in its own time.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	err := d.conn.ConfirmOrReconnect(ctx)
	errs, tickets := make([]error, len(rs)), make([]*ticket, len(rs))
	var unsure []int
	for i, r := range rs {
		if errs[i] = err; err != nil {
			continue
		}
		t := d.ticketOf(r.Hold)
		if t != nil {
			errs[i], tickets[i] = d.renewed(t, r), t
		}
		if errs[i] == nil && (t == nil || !d.isWatched(t)) {
			unsure = append(unsure, i)
		}
	}
	_, _ = each(unsure, func(i int) (struct{}, error) {
		if t := tickets[i]; t != nil {
			errs[i] = d.lookFor(ctx, t)
		} else if _, errs[i] = d.findTicket(ctx, rs[i].Hold); errs[i] == nil {
			errs[i] = errForeign
		}
		return struct{}{}, nil
	})
	return errs
}

// isWatched reports whether a watch shows that the node of a ticket is there: its event
// would have come before the last answer.
func (d *Driver) isWatched(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.watch.Holds() && d.conn.Same(t.seen)
}

// lookFor finds out whether the node of a ticket is there, and watches it unless it is
// watched.
func (d *Driver) lookFor(ctx context.Context, t *ticket) error {
	d.mu.Lock()
	watch := t.watch
	d.mu.Unlock()
	if !watch.Holds() {
		return d.watchTicket(ctx, t)
	}
	connection := d.conn.Number()
	st, err := d.conn.Exists(ctx, t.path)
	switch {
	case err != nil:
		return err
	case st == nil:
		return errRemoved
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.seen = connection
	return nil
}

// renewed renews the lease of a ticket, after the session was confirmed.
func (d *Driver) renewed(t *ticket, r driver.Renewal) error {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted, given := min(r.TTL, t.most), t.sess.Lease()
	switch {
	case !t.held || t.leaving:
		return fmt.Errorf("%w: the ticket is not held", driver.ErrLost)
	case t.lease > given: // the holder may not have been notified: events may have been dropped
		return errShortened
	case !t.until.IsZero() && now.After(t.until):
		return fmt.Errorf("%w: the lease is over", driver.ErrLost)
	case wanted > given:
		return fmt.Errorf("%w: a lease of %v: the session has become shorter, and keeps a ticket for %v at most",
			driver.ErrUnsupported, wanted, given)
	}
	t.lease = max(t.lease, wanted)
	if until := now.Add(wanted); !t.until.IsZero() && until.After(t.until) {
		t.until = until
	}
	return nil
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if err := d.giveUp(ctx, h); err != nil {
		return err
	}
	var path string
	var heldAlone bool
	var err error
	t := d.ticketOf(h)
	if t == nil {
		path, err = d.findTicket(ctx, h)
	} else {
		d.mu.Lock()
		t.leaving = true
		path, heldAlone = t.path, t.held && !t.hold.Shared
		d.mu.Unlock()
	}
	if err == nil {
		err = d.remove(ctx, path, heldAlone)
	}
	if isGone(err) {
		d.createKnown(h.ID)
		d.forget(t)
	}
	return err
}

// findTicket searches the queue for a ticket that this driver does not have. It returns the
// path of its node. If there is none, and never will be, since the create of the ticket has ended if
// there was one, it returns errNotQueued.
func (d *Driver) findTicket(ctx context.Context, h driver.Hold) (path string, err error) {
	d.mu.Lock()
	ended := d.creates[h.ID]
	d.mu.Unlock()
	if ended != nil {
		if err := d.wait(ctx, ended); err != nil {
			return "", err
		}
	}
	if err := d.conn.Confirm(ctx); err != nil { // not Sync, which a deposed leader answers, too
		return "", err
	}
	parent := d.parent(h.Name)
	v, err := d.list(ctx, parent)
	if err != nil {
		return "", err
	}
	for _, e := range v.entries {
		if e.id == h.ID {
			return parent + "/" + e.node, nil
		}
	}
	return "", errNotQueued
}

// remove deletes a ticket's node, and the name's node with the last ticket. For
// heldAlone see deleteTicket.
func (d *Driver) remove(ctx context.Context, path string, heldAlone bool) error {
	parent, err := parentOf(path), zk.ErrNotEmpty
	if !d.expectsOthers(parent) {
		err = d.deleteLast(ctx, path)
	}
	if errors.Is(err, zk.ErrNotEmpty) {
		var left int
		left, err = d.deleteTicket(ctx, path, heldAlone)
		switch {
		case err != nil:
		case left == 0:
			d.removeEmpty(ctx, parent)
		default:
			d.expectOthers(parent, true)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return errRemoved
	}
	return err
}

// isGone reports whether a removal has left no node.
func isGone(err error) bool { return err == nil || errors.Is(err, driver.ErrLost) }
