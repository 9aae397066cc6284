package consul

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A kind is what tickets that share a session have in common. Those with a
// MinHold have sessions of their own, which Close leaves alone.
type kind struct {
	ttl     time.Duration
	minHold bool
}

// A session carries all tickets of a driver of one kind. As long
// as it is renewed they live; when it ends, Consul deletes them all at once.
//
//	open ──► retired      a ticket of it may be created late: it takes no new ones
//	  │         │
//	  └────┬────┘
//	       ├──► destroyed  nobody needs it any more, or Close
//	       └──► over       Consul says that it is not there
//
// Driver.mu guards what is not constant.
type session struct {
	id string
	kind
	created time.Time

	asked    time.Time          // before the last successful renewal, or the creation, was sent
	tickets  map[string]*ticket // by ID
	slots    map[string]*slots  // by name
	turn     int                // of the next name that has no slots
	waiting  int                // tickets for which an Acquire is under way
	idle     time.Time          // since when there are no tickets
	retired  bool
	ended    bool // destroyed or over
	renewing bool
	failing  bool          // the last renewal was not answered
	retry    time.Duration // delay after a failed keep-alive
	next     time.Time     // no renewal before this
	watched  bool          // for losses
}

// A class is the sessions of one kind, of which the newest is in use.
type class struct {
	turn chan struct{} // holds one token: who creates or renews
	use  *session      // guarded by Driver.mu; or nil
}

// fresh is the part of its TTL after which a session is renewed.
const fresh = 4

// attach adds the ticket to a session of the TTL that was renewed
// after since; it makes or renews one when need be. One that is in a
// session stays there.
func (d *Driver) attach(ctx context.Context, t *ticket, k kind, since time.Time) (*ticket, error) {
	for {
		known, c, err := d.attached(t, k, since)
		if known != nil || err != nil {
			return known, err
		}
		if err := d.refresh(ctx, c, k, since); err != nil {
			return nil, err
		}
	}
}

// attached adds the ticket where a usable session is at hand; else it returns
// the class that needs one.
func (d *Driver) attached(t *ticket, k kind, since time.Time) (*ticket, *class, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, driver.ErrClosed
	}
	if known := d.tickets[t.id]; known != nil {
		if !known.held && !known.waits {
			known.waits = true
			known.s.waiting++
		}
		return known, nil, nil
	}
	c := d.classes[k]
	if c == nil {
		c = &class{turn: make(chan struct{}, 1)}
		c.turn <- struct{}{}
		d.classes[k] = c
	}
	if c.use == nil || c.use.asked.Before(since) {
		return nil, c, nil
	}
	t.s, t.first = c.use, c.use
	t.slot = t.s.takeSlot(t.name)
	t.key = d.store.keys.ticket(t.name, t.s.id, t.slot)
	d.tickets[t.id] = t
	t.s.tickets[t.id] = t
	t.waits = true
	t.s.waiting++
	if !t.s.watched {
		d.tendAt(t.s.created.Add(watchAfter))
	}
	d.tendAt(t.s.asked.Add(k.ttl / fresh))
	return t, nil, nil
}

// refresh makes the class's session usable; one caller does it for all.
func (d *Driver) refresh(ctx context.Context, c *class, k kind, since time.Time) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { c.turn <- struct{}{} }()
	d.mu.Lock()
	s := c.use
	usable := s != nil && !s.asked.Before(since)
	d.mu.Unlock()
	if usable {
		return nil
	}
	if s != nil {
		alive, err := d.renewSession(ctx, s)
		if alive || err != nil {
			return err
		}
	}
	return d.createSession(ctx, c, k)
}

func (d *Driver) createSession(ctx context.Context, c *class, k kind) error {
	asked := time.Now()
	id, err := d.store.createSession(ctx, d.opts.prefix, k.ttl)
	if err != nil {
		return err
	}
	s := &session{
		id: id, kind: k, created: asked, asked: asked, idle: asked,
		tickets: make(map[string]*ticket), slots: make(map[string]*slots),
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		_ = d.destroy(s) // not reached: it ends by its TTL
		return driver.ErrClosed
	}
	defer d.mu.Unlock()
	d.sessions[s] = struct{}{}
	c.use = s
	d.classes[k] = c
	d.tendAt(asked.Add(idleFor))
	return nil
}

// renewSession renews s; false: it is over, and all its tickets are lost.
func (d *Driver) renewSession(ctx context.Context, s *session) (alive bool, err error) {
	asked := time.Now()
	alive, err = d.store.renewSession(ctx, s.id)
	if err == nil && !alive {
		d.sessionOver(s)
		return false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answered(s, err)
	if err == nil && asked.After(s.asked) {
		s.asked = asked
	}
	return err == nil, err
}

// answered notes whether the store has answered a request about s. After an outage
// blocking queries may hang on dead connections. With mu held.
func (d *Driver) answered(s *session, err error) {
	switch {
	case err != nil:
		s.failing = true
	case s.failing:
		s.failing, s.retry = false, 0
		d.recheckQueues()
	}
}

// ensure sees to it that t's session was renewed after since. It tries until ctx
// ends.
func (d *Driver) ensure(ctx context.Context, t *ticket, since time.Time) error {
	var last error
	for delay := time.Duration(0); ; {
		d.mu.Lock()
		s := t.s
		usable := s.ended || !s.asked.Before(since)
		d.mu.Unlock()
		if usable {
			return nil // or lost, as grant finds
		}
		alive, err := d.renewSession(ctx, s)
		switch {
		case ctx.Err() != nil:
			return ended(ctx, better(ctx, err, last))
		case err == nil && !alive:
			return errSessionLost
		case err != nil:
			last, delay = err, backoff(delay)
			if !sleep(ctx, delay) {
				return ended(ctx, last)
			}
		}
	}
}

var errSessionLost = fmt.Errorf("%w: %w", driver.ErrLost, errSession)

// sessionOver gives up a session that Consul does not have any more.
func (d *Driver) sessionOver(s *session) {
	d.mu.Lock()
	if s.ended {
		d.mu.Unlock()
		return
	}
	d.forget(s)
	lost := make([]*ticket, 0, len(s.tickets))
	for _, t := range s.tickets {
		if t.target != nil && t.target.s != s {
			d.movedLocked(t) // it is there, or nowhere: the next renewal asks
			continue
		}
		if t.targetOf != nil {
			t.targetOf.target = nil
		}
		lost = append(lost, t)
		delete(d.tickets, t.id)
		t.first.freeSlot(t.name, t.slot)
	}
	clear(s.tickets)
	d.mu.Unlock()
	for _, t := range lost {
		d.tellLost(t, errSessionLost)
	}
}

// forget takes a session out of use. With mu held.
func (d *Driver) forget(s *session) {
	s.ended = true
	delete(d.sessions, s)
	d.unuse(s)
}

// unuse lets a class make a new session. With mu held.
func (d *Driver) unuse(s *session) {
	if c := d.classes[s.kind]; c != nil && c.use == s {
		c.use = nil
		delete(d.classes, s.kind)
	}
}

// destroyLocked destroys a session in the background. With mu held.
func (d *Driver) destroyLocked(s *session) {
	d.work.Go(func() {
		_ = d.destroy(s) // not reached: it ends by its TTL
	})
}

const (
	// destroyBound is how long the end of a session may take.
	destroyBound = 3 * time.Second
	// closeBound is how long Close waits for it.
	closeBound = 100 * time.Millisecond
)

func (d *Driver) destroy(s *session) error {
	ctx, cancel := context.WithTimeout(d.last, destroyBound)
	defer cancel()
	return d.store.destroySession(ctx, s.id)
}

// destroyAll is for Close.
func (d *Driver) destroyAll(sessions []*session) error {
	errs := make([]error, len(sessions))
	var group sync.WaitGroup
	for i, s := range sessions {
		group.Go(func() { errs[i] = d.destroy(s) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// kept tells that Close leaves s alone, for a MinHold. With mu held.
func (s *session) kept(now time.Time) bool {
	for _, t := range s.tickets {
		if t.keep.After(now) {
			return true
		}
	}
	return false
}

// isOwn tells whether a key of a queue is that of a ticket of this driver. With
// mu held.
func (d *Driver) isOwn(key string) bool {
	_, slot := path.Split(key)
	for s := range d.sessions {
		if strings.HasPrefix(slot, s.id) {
			return true
		}
	}
	return false
}
