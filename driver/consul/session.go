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

// A session carries all tickets of a driver that ask for the same TTL. As long
// as it is renewed they live; when it ends, Consul deletes them all at once.
//
//	open ──► retired      a ticket of it may be created late: it takes no new ones
//	  │         │
//	  └────┬────┘
//	       ├──► destroyed  nobody needs it any more, or Close
//	       └──► dead       Consul says that it is not there
//
// Driver.mu guards what is not constant.
type session struct {
	id      string
	ttl     time.Duration
	created time.Time

	asked    time.Time          // before the last successful renewal, or the creation, was sent
	tickets  map[string]*ticket // by ID
	slots    map[string]*slots  // by name
	turn     int                // of the next name that has no slots
	waiting  int                // tickets that are joining or waiting
	idle     time.Time          // since when there are no tickets
	retired  bool
	ended    bool // destroyed or dead
	renewing bool
	failing  bool          // the last renewal was not answered
	retry    time.Duration // delay after a failed renewal by the keeper
	next     time.Time     // no renewal before this
	post     bool          // its letter box is being watched
}

// A class is the sessions of one TTL, of which the newest is in use.
type class struct {
	turn chan struct{} // holds one token: who creates or renews
	use  *session      // guarded by Driver.mu; or nil
}

// A ticket is what the driver remembers of one that it has, or may have, in the
// store. Driver.mu guards what is not constant.
type ticket struct {
	name string
	id   string

	s      *session
	home   *session // whose slot it has
	slot   int
	key    string
	number uint64
	modify uint64  // of its key, as far as is known
	since  int64   // of the grant, in nanoseconds since 1970
	w      *waiter // while an Acquire waits for it
	shared bool
	held   bool
	doubt  bool // it may yet be created by a request that was not answered
}

// fresh is the part of its TTL after which a session is renewed.
const fresh = 4

// attach gives the ticket a place in a session of the TTL that was renewed
// after since; it makes or renews one when need be. A ticket that has its
// place keeps it.
func (d *Driver) attach(ctx context.Context, t *ticket, ttl time.Duration, since time.Time) (*ticket, error) {
	for {
		known, c, err := d.attached(t, ttl, since)
		if known != nil || err != nil {
			return known, err
		}
		if err := d.refresh(ctx, c, ttl, since); err != nil {
			return nil, err
		}
	}
}

// attached takes a place where a usable session is at hand; else it returns
// the class that needs one.
func (d *Driver) attached(t *ticket, ttl time.Duration, since time.Time) (*ticket, *class, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, driver.ErrClosed
	}
	if known := d.tickets[t.id]; known != nil {
		return known, nil, nil
	}
	c := d.classes[ttl]
	if c == nil {
		c = &class{turn: make(chan struct{}, 1)}
		c.turn <- struct{}{}
		d.classes[ttl] = c
	}
	if c.use == nil || c.use.asked.Before(since) {
		return nil, c, nil
	}
	t.s, t.home = c.use, c.use
	t.slot = t.s.takeSlot(t.name)
	t.key = d.keys.ticket(t.name, t.s.id, t.slot)
	d.tickets[t.id] = t
	t.s.tickets[t.id] = t
	t.s.waiting++
	if !t.s.post {
		d.planKeeper(t.s.created.Add(postAfter))
	}
	d.planKeeper(t.s.asked.Add(ttl / fresh))
	return t, nil, nil
}

// refresh makes the class's session usable; one caller does it for all.
func (d *Driver) refresh(ctx context.Context, c *class, ttl time.Duration, since time.Time) error {
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
	return d.createSession(ctx, c, ttl)
}

func (d *Driver) createSession(ctx context.Context, c *class, ttl time.Duration) error {
	asked := time.Now()
	id, err := d.store.createSession(ctx, d.opts.prefix, ttl)
	if err != nil {
		return err
	}
	s := &session{id: id, ttl: ttl, created: asked, asked: asked, idle: asked, tickets: make(map[string]*ticket), slots: make(map[string]*slots)}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		_ = d.destroy(s) // not reached: it ends by its TTL
		return driver.ErrClosed
	}
	defer d.mu.Unlock()
	d.sessions[s] = struct{}{}
	c.use = s
	d.classes[ttl] = c
	d.planKeeper(asked.Add(idleFor))
	return nil
}

// renewSession renews s; false: it is dead, and all its tickets are lost.
func (d *Driver) renewSession(ctx context.Context, s *session) (alive bool, err error) {
	asked := time.Now()
	alive, err = d.store.renewSession(ctx, s.id)
	if err == nil && !alive {
		d.bury(s)
		return false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		s.failing = true
		return false, err
	}
	if asked.After(s.asked) {
		s.asked = asked
	}
	if s.failing { // an outage is over: blocking queries may hang on dead connections
		s.failing, s.retry = false, 0
		d.recheckLines()
	}
	return true, nil
}

// ensure sees to it that t's session was renewed after since. It tries until ctx
// ends.
func (d *Driver) ensure(ctx context.Context, t *ticket, since time.Time) error {
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
			return ended(ctx, err)
		case err == nil && !alive:
			return fmt.Errorf("%w: %w", driver.ErrLost, errSession)
		case err != nil:
			delay = backoff(delay)
			sleep(ctx, delay)
		}
	}
}

var errSession = errors.New("the consul session has ended")

// bury gives up a session that Consul does not have any more.
func (d *Driver) bury(s *session) {
	d.mu.Lock()
	if s.ended {
		d.mu.Unlock()
		return
	}
	d.forget(s)
	lost := make([]*ticket, 0, len(s.tickets))
	for _, t := range s.tickets {
		lost = append(lost, t)
		delete(d.tickets, t.id)
		t.home.freeSlot(t.name, t.slot)
	}
	clear(s.tickets)
	d.mu.Unlock()
	for _, t := range lost {
		d.tellLost(t, errSession)
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
	if c := d.classes[s.ttl]; c != nil && c.use == s {
		c.use = nil
		delete(d.classes, s.ttl)
	}
}

// tellLost tells whoever has the ticket that it is gone from the store.
func (d *Driver) tellLost(t *ticket, cause error) {
	d.mu.Lock()
	held, number := t.held, t.number
	d.mu.Unlock()
	d.endWait(t, cause)
	d.left(t.name, number)
	if held && d.tell != nil {
		d.tell(driver.Hold{Name: t.name, ID: t.id, Token: number, Shared: t.shared}, cause)
	}
}

// endWait ends the Acquire that waits for the ticket, if there is one.
func (d *Driver) endWait(t *ticket, cause error) {
	d.mu.Lock()
	w := t.w
	d.mu.Unlock()
	if w != nil {
		w.end(cause)
	}
}

// detach takes the ticket out of the books: it is not in the store, or nobody
// will ask for it again. False: it was not in them.
func (d *Driver) detach(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] != t {
		return false
	}
	delete(d.tickets, t.id)
	t.home.freeSlot(t.name, t.slot)
	s := t.s
	delete(s.tickets, t.id)
	if !t.held {
		s.waiting--
	}
	d.settle(s)
	return true
}

// settle decides what becomes of a session that a ticket has left. With mu
// held.
func (d *Driver) settle(s *session) {
	if len(s.tickets) > 0 || s.ended || d.closed { // Close destroys them all
		return
	}
	s.idle = time.Now()
	if s.retired {
		d.forget(s)
		d.destroyLocked(s)
		return
	}
	d.planKeeper(s.idle.Add(idleFor))
}

// holdLocked notes that a ticket is granted. With mu held.
func (d *Driver) holdLocked(t *ticket) {
	if !t.held {
		t.held = true
		t.since = time.Now().UnixNano()
		t.w = nil
		t.s.waiting--
	}
}

// lose takes a ticket that the store does not have any more off the books.
func (d *Driver) lose(t *ticket, cause error) {
	if d.detach(t) {
		d.tellLost(t, cause)
	}
}

// ticketOf returns what is known of an ID; nil: nothing.
func (d *Driver) ticketOf(id string) *ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tickets[id]
}

// destroyLocked destroys a session in the background. With mu held.
func (d *Driver) destroyLocked(s *session) {
	d.work.Go(func() {
		_ = d.destroy(s) // not reached: it ends by its TTL
	})
}

// destroyBound is how long the end of a session may take.
const destroyBound = 3 * time.Second

func (d *Driver) destroy(s *session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), destroyBound)
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

// isOwn tells whether a key of a line is that of a ticket of this driver. With
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
