package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
)

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	e := &enqueueing{d: d, r: r, parent: d.parent(r.Name), bound: time.Now().Add(enqueueBound)}
	key := ticketKey(r.Hold(0))
	if err := d.takeTurn(ctx, key); err != nil {
		return driver.Grant{}, err // the call that has the turn may still queue the ticket
	}
	err := e.enqueue(ctx)
	d.endTurn(key)
	switch {
	case err != nil && !d.mayHave(r.ID):
		return driver.Grant{}, driver.NoTicket(err)
	case err != nil:
		return driver.Grant{}, err
	case e.granted:
		return d.grant(e.t, r, e.sent) // the create has confirmed the session
	}
	w := newWaiter(d, e.t, r)
	w.bound = e.bound
	return w.run(ctx)
}

// canKeep refuses a minimum hold that a session cannot give. Only the session keeps a
// ticket, so after the end of the client the ticket stays until the session times out,
// if nobody has ended the session.
func canKeep(least time.Duration, s *zkconn.Session) error {
	if most := s.Lease(); least > most {
		return fmt.Errorf("%w: a minimum hold of %v: a session of %v keeps a ticket for %v at most",
			driver.ErrUnsupported, least, s.Timeout(), most)
	}
	return nil
}

// errNotOwn refuses a minimum hold on a user's connection, which would end the session, or keep it for ever.
var errNotOwn = fmt.Errorf("%w: a minimum hold on a connection that is not the driver's own; open the store by URL", driver.ErrUnsupported)

// mayHave reports whether an earlier request has left a ticket of that ID, or may have.
func (d *Driver) mayHave(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.creates[id] != nil || d.tickets[id] != nil
}

// createKnown notes that it is known what has become of the create of a ticket.
func (d *Driver) createKnown(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.creates, id)
}

// ticketOf returns the ticket of that name and ID, if this driver has it.
func (d *Driver) ticketOf(h driver.Hold) *ticket {
	s := d.conn.Session()
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tickets[h.ID]; t != nil && t.hold.Name == h.Name && t.sess == s {
		return t
	}
	return nil
}

// enqueueing is a request whose ticket is not queued yet.
type enqueueing struct {
	d      *Driver
	r      driver.Request
	parent string
	bound  time.Time // for the tries to queue it

	t       *ticket
	granted bool
	sent    time.Time // when the create of t was sent
	seen    *view     // of a request that does not wait: the queue that would grant it
	turn    bool      // it has that of its queue, see takeTurn
}

// enqueue queues a ticket. A request that does not wait gets ErrNotAcquired, and no
// ticket, if it would have to wait.
func (e *enqueueing) enqueue(ctx context.Context) error {
	if e.r.MinHold > 0 && !e.d.conn.Own() {
		return errNotOwn
	}
	if e.t = e.d.ticketOf(e.r.Hold(0)); e.t != nil {
		return nil // a repeated request
	}
	defer func() {
		if e.turn {
			e.d.endTurn(e.parent)
		}
	}()
	for pause := newBackoff(); ; {
		err := e.step(ctx)
		switch {
		case err == nil && e.t != nil:
			return nil
		case err == nil: // the queue was not as expected
			continue
		}
		if err := e.d.pauseAfter(ctx, err, &pause, e.bound); err != nil {
			return err
		}
	}
}

// step takes one step to queue a ticket. If there is neither an error nor a ticket after
// it, another step is needed.
func (e *enqueueing) step(ctx context.Context) error {
	d := e.d
	before, err := d.conn.Present(ctx)
	if err == nil {
		err = canKeep(e.r.MinHold, before)
	}
	if err == nil {
		err = d.agree(ctx, true)
	}
	if err != nil {
		return err
	}
	if d.mayHave(e.r.ID) {
		if err := e.find(ctx); err != nil || e.t != nil {
			return err
		}
		d.createKnown(e.r.ID)
	}
	if d.givenUp(e.r.Hold(0)) {
		return errReleased
	}
	others := d.expectsOthers(e.parent)
	if others && !e.r.Wait && e.seen == nil {
		return e.check(ctx)
	}
	e.sent = time.Now()
	data := newRecord(e.r, before.Lease())
	got, err := d.createTicket(ctx, e.parent, e.r, data, !others, e.seen)
	now := d.conn.Session()
	if err == nil && now != before || err != nil && zkconn.WasSent(err) && !zkconn.Answered(err) {
		return err // also if the connection has got another session: either may have created the node
	}
	d.createKnown(e.r.ID)
	switch {
	case err == nil:
		e.granted = got.children == 1 || e.seen != nil
		return e.adopt(got.path, got.czxid, now)
	case errors.Is(err, zk.ErrNodeExists):
		d.expectOthers(e.parent, true)
		return nil
	case e.seen != nil && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, zk.ErrNoNode)):
		e.seen = nil // the queue has changed since
		return e.takeTurn(ctx)
	case errors.Is(err, zk.ErrNoNode) && others:
		d.expectOthers(e.parent, false)
		return nil
	case errors.Is(err, zk.ErrNoNode): // somebody has deleted the base
		_, err = d.readVersion(ctx, true)
	}
	return err
}

// takeTurn is called when the queue has changed since a try has read it. It waits until no
// other try of this driver has a turn in this queue. Readers that try at the same time
// change the queue for one another: if they all read it again at once, only one of them is
// granted, so that n of them would send n² requests.
func (e *enqueueing) takeTurn(ctx context.Context) error {
	if e.turn {
		return nil
	}
	err := e.d.takeTurn(ctx, e.parent)
	e.turn = err == nil
	return err
}

// adopt makes a node a ticket of this driver.
func (e *enqueueing) adopt(path string, czxid int64, s *zkconn.Session) error {
	t := &ticket{hold: e.r.Hold(uint64(czxid)), path: path, sess: s, since: time.Now()}
	d := e.d
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.creates, e.r.ID)
	if s.Over() { // else sessionOver finds the ticket
		return fmt.Errorf("%w while the ticket was queued", zkconn.ErrExpired)
	}
	d.tickets[e.r.ID] = t
	e.t = t
	return nil
}

// find searches for the node of a create of which it is not known what has become of it.
func (e *enqueueing) find(ctx context.Context) error {
	d := e.d
	path, err := d.findTicket(ctx, e.r.Hold(0))
	if errors.Is(err, errNotQueued) {
		return nil
	}
	if err != nil {
		return err
	}
	st, err := d.conn.Exists(ctx, path)
	if err != nil {
		return err
	}
	if s := d.conn.Session(); s != nil && st != nil && st.EphemeralOwner == s.ID {
		return e.adopt(path, st.Czxid, s)
	}
	// The node is of a session that has ended, and would go with it.
	if err := d.remove(ctx, path, false); !isGone(err) {
		return err
	}
	return nil
}

// check refuses a request that does not wait if it would have to. If the request would
// be granted, it is queued only if the queue is still as seen here. So a refused request
// is never queued.
func (e *enqueueing) check(ctx context.Context) error {
	v, err := e.d.syncAndList(ctx, e.parent)
	switch {
	case err != nil:
		return err
	case !v.admits(e.r):
		return driver.ErrNotAcquired
	case v.absent:
		e.d.expectOthers(e.parent, false)
	default:
		e.seen = v
	}
	return nil
}

// grant makes t held and returns its grant. If t was lost meanwhile it returns an error,
// since no notification of that loss would follow.
func (d *Driver) grant(t *ticket, r driver.Request, asked time.Time) (driver.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := driver.Grant{Token: t.hold.Token, Asked: asked, TTL: t.sess.Lease()}
	switch {
	case d.closed: // Close may have ended the session that a minimum hold needs
		return driver.Grant{}, driver.ErrClosed
	case d.tickets[r.ID] != t:
		return driver.Grant{}, errRemoved
	case t.leaving:
		return driver.Grant{}, errLeaving
	case r.MinHold > g.TTL:
		return driver.Grant{}, fmt.Errorf("%w: a minimum hold of %v: the session has become shorter, and keeps a ticket for %v at most",
			driver.ErrUnsupported, r.MinHold, g.TTL)
	}
	t.held, t.most, t.lease = true, g.TTL, min(r.TTL, g.TTL)
	if !r.Renewed {
		t.until = asked.Add(t.lease)
	}
	if r.MinHold > 0 {
		t.kept = time.Now().Add(r.MinHold)
	}
	t.since = time.Now()
	d.startWatching()
	return g, nil
}

// hintsMost is the most hints about queues that a driver keeps.
const hintsMost = 4096

// expectsOthers reports whether the queue was not empty when last seen. It is a hint
// about which request to try first, and may be wrong.
func (d *Driver) expectsOthers(parent string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.occupied[parent]
	return ok
}

func (d *Driver) expectOthers(parent string, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !yes {
		delete(d.occupied, parent)
		return
	}
	if len(d.occupied) >= hintsMost {
		clear(d.occupied)
	}
	d.occupied[parent] = struct{}{}
}
