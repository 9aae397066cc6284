package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

const (
	// patience is how long a ticket that is not queued yet is tried for while
	// no server answers: an ensemble that has lost its leader has a new one by
	// then.
	patience = 5 * time.Second

	retryFirst = 20 * time.Millisecond
	retryMost  = time.Second
)

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	err := d.ready(ctx)
	if err == nil && r.MinHold > 0 {
		err = d.canKeep(ctx, r.MinHold)
	}
	if err != nil {
		if !d.mayHave(r.ID) {
			err = driver.NoTicket(err)
		}
		return driver.Grant{}, err
	}
	j := &joining{d: d, r: r, parent: d.parent(r.Name), began: time.Now()}
	j.lateMaybe = d.clearOfSuspicion(r.ID)
	j.unsure = j.lateMaybe // an earlier request of the same ID may have left its node
	if t := d.ticketOf(r.Hold(0)); t != nil {
		if j.lateMaybe {
			d.suspect(j.parent, r.ID)
		}
		return d.await(ctx, t, r, j.began) // asked again
	}
	free, err := j.join(ctx)
	if j.lateMaybe {
		d.suspect(j.parent, r.ID)
	} else if err != nil && j.t == nil {
		err = driver.NoTicket(err)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	if free {
		return d.grant(j.t, r, j.sent), nil // the create has proved the session alive
	}
	return d.await(ctx, j.t, r, j.began)
}

// mayHave reports whether an earlier request has left a ticket of that ID, or
// may have.
func (d *Driver) mayHave(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, suspected := d.chores.suspects[id]
	return suspected || d.tickets[id] != nil
}

// ticketOf returns the ticket of that name and ID, if it is on the books.
func (d *Driver) ticketOf(h driver.Hold) *ticket {
	s := d.session()
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tickets[h.ID]; t != nil && t.hold.Name == h.Name && t.sess == s {
		return t
	}
	return nil
}

// joining is a request on its way into the line.
type joining struct {
	d      *Driver
	r      driver.Request
	parent string
	began  time.Time

	t         *ticket
	sent      time.Time // when the create was sent that has made t
	unsure    bool      // a create may have been carried out
	lateMaybe bool      // … or may still be: see suspect
	seen      *view     // of a request that does not wait: the queue in which it would be granted
}

// join puts a ticket in the queue; free: it is granted. A request that does not
// wait, and would have to, gets ErrNotAcquired and none.
func (j *joining) join(ctx context.Context) (free bool, err error) {
	for delay := retryFirst; ; {
		free, err = j.step(ctx)
		switch {
		case err == nil && j.t != nil:
			return free, nil
		case err == nil:
			continue // the line was not as thought
		case final(err) || errors.Is(err, driver.ErrNotAcquired) || ctx.Err() != nil:
			return false, err
		case time.Since(j.began) > patience || !j.d.pause(ctx, delay):
			return false, err
		}
		delay = min(2*delay, retryMost)
	}
}

// step does one thing to get a ticket into the queue. Without an error and
// without a ticket there is something else to do.
func (j *joining) step(ctx context.Context) (free bool, err error) {
	d := j.d
	if err := d.agree(ctx, true); err != nil {
		return false, err
	}
	if j.unsure {
		if err := j.find(ctx); err != nil || j.t != nil {
			return false, err
		}
		j.unsure = false
	}
	crowded := d.isCrowded(j.parent)
	if crowded && !j.r.Wait && j.seen == nil {
		return false, j.check(ctx)
	}
	j.sent = time.Now()
	before := d.session()
	data := newRecord(j.r, leaseOf(d.timeout()))
	got, err := write(ctx, d, func() (taken, error) { return d.takeTicket(j.parent, j.r, data, !crowded, j.seen) })
	switch {
	case err == nil:
		return got.children == 1 || j.seen != nil, j.made(got, before)
	case errors.Is(err, zk.ErrNodeExists):
		d.setCrowded(j.parent, true)
		return false, nil
	case j.seen != nil && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, zk.ErrNoNode)):
		j.seen = nil // somebody else has joined or left since
		return false, nil
	case errors.Is(err, zk.ErrNoNode) && crowded:
		d.setCrowded(j.parent, false)
		return false, nil
	case errors.Is(err, zk.ErrNoNode):
		_, err := call(ctx, d, func() (struct{}, error) { return struct{}{}, d.createPath(d.base) })
		return false, err
	case answered(err), !wasSent(err):
		return false, err
	}
	j.unsure, j.lateMaybe = true, true
	return false, err
}

// made registers the ticket of a create that was answered.
func (j *joining) made(got taken, before *session) error {
	now := j.d.session()
	if now == nil || now != before {
		// The connection got a session meanwhile: was it this one that created?
		j.unsure = true
		return nil
	}
	return j.adopt(got.path, got.czxid, now)
}

// adopt makes a node our ticket.
func (j *joining) adopt(path string, czxid int64, s *session) error {
	t := &ticket{hold: j.r.Hold(uint64(czxid)), path: path, sess: s}
	d := j.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.over() {
		return fmt.Errorf("%w while the ticket was queued", errExpired)
	}
	d.tickets[j.r.ID] = t
	j.t = t
	return nil
}

// find looks for the node of a create whose answer did not come. It first has
// the server catch up, so that the node is there if it ever will be, unless
// the request is still held back on a connection that was given up: see
// suspect.
func (j *joining) find(ctx context.Context) error {
	d := j.d
	if err := d.sync(ctx); err != nil {
		return err
	}
	v, err := d.list(ctx, j.parent)
	if err != nil {
		return err
	}
	for _, e := range v.entries {
		if e.id != j.r.ID {
			continue
		}
		path := j.parent + "/" + e.node
		st, err := call(ctx, d, func() (*zk.Stat, error) { _, st, err := d.conn.Exists(path); return st, err })
		if err != nil {
			return err
		}
		if s := d.session(); s != nil && st.EphemeralOwner == s.id {
			return j.adopt(path, st.Czxid, s)
		}
		// It is of a session that has ended, and goes with it.
		if err := d.drop(ctx, path, plain); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return nil
}

// check refuses a request that does not wait, and would have to. One that would
// be granted is queued only if the queue is still as seen here. So a refused
// request is never queued.
func (j *joining) check(ctx context.Context) error {
	if err := j.d.sync(ctx); err != nil {
		return err
	}
	v, err := j.d.list(ctx, j.parent)
	switch {
	case err != nil:
		return err
	case !v.admits(j.r):
		return driver.ErrNotAcquired
	case v.absent:
		j.d.setCrowded(j.parent, false)
	default:
		j.seen = v
	}
	return nil
}

// grant makes t held and tells so.
func (d *Driver) grant(t *ticket, r driver.Request, asked time.Time) driver.Grant {
	lease := t.sess.lease()
	g := driver.Grant{Token: t.hold.Token, Asked: asked}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.held = true
	t.since = asked
	if r.TTL >= lease {
		g.TTL = lease
	}
	if !r.Renewed {
		t.until = asked.Add(r.TTL)
	}
	if r.MinHold > 0 {
		t.kept = time.Now().Add(r.MinHold)
	}
	if t.watch == nil {
		d.watchLater(t)
	}
	return g
}

// crowdedMost bounds the hints about lines.
const crowdedMost = 4096

// isCrowded tells whether the line had others when last seen. It is a hint
// about which request to try first, and may be wrong.
func (d *Driver) isCrowded(parent string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.crowded[parent]
	return ok
}

func (d *Driver) setCrowded(parent string, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !yes {
		delete(d.crowded, parent)
		return
	}
	if len(d.crowded) >= crowdedMost {
		clear(d.crowded)
	}
	d.crowded[parent] = struct{}{}
}
