// Package customdriver is a driver in one file, for reading before you write
// your own. Its store is a map; yours is a server, and where this one locks a
// mutex, yours sends one request that the store executes as a whole (a script,
// a transaction, a compare-and-swap).
//
// The D-numbers are the rules of package driver. The test proves with one call all
// that a map can show: without a network, or a server to kill, the suite skips
// what is about those, and says so. So this driver leaves out the harder half:
// heartbeats of waiters, outages after a ticket was queued, requests whose outcome is
// unknown (D7, D8, D14). Package driver/sqlite is the smallest one that has all.
package customdriver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Store is what a server would be.
type Store struct {
	mu     sync.Mutex
	last   uint64 // the last number given; it never goes back (D3)
	queues map[string]*queue
}

// queue is the tickets of one name, in the order of their numbers.
type queue struct {
	tickets []*ticket
	changed chan struct{} // closed, and replaced, when a ticket leaves
}

type ticket struct {
	driver.Ticket
	until time.Time // end of the lease; zero while waiting
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{queues: make(map[string]*queue)} }

// update runs f on the queue of name, without the tickets whose lease is over,
// and forgets a queue that is empty afterwards (D18). Every method is one call
// of it: that is what makes each of them happen at one instant.
func (s *Store) update(name string, f func(q *queue)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		q = &queue{changed: make(chan struct{})}
		s.queues[name] = q
	}
	now := time.Now()
	q.remove(func(t *ticket) bool { return t.Held && !now.Before(t.until) })
	f(q)
	if len(q.tickets) == 0 {
		delete(s.queues, name)
	}
}

// remove takes tickets out of the queue and wakes all who wait in it. A server
// had better wake only those whom that lets through.
func (q *queue) remove(which func(*ticket) bool) (removed bool) {
	before := len(q.tickets)
	q.tickets = slices.DeleteFunc(q.tickets, which)
	if len(q.tickets) == before {
		return false
	}
	close(q.changed)
	q.changed = make(chan struct{})
	return true
}

func (q *queue) find(id string) int {
	return slices.IndexFunc(q.tickets, func(t *ticket) bool { return t.ID == id })
}

// view is the queue as the grant rule and Inspect see it.
func (q *queue) view() []driver.Ticket {
	var ts []driver.Ticket
	for _, t := range q.tickets {
		v := t.Ticket
		if v.Held {
			v.Remaining = time.Until(t.until)
		}
		ts = append(ts, v)
	}
	return ts
}

// Driver is one process's connection to a Store.
type Driver struct {
	s       *Store
	close   sync.Once
	closing chan struct{}
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver. A real one is given the client that the user has.
func New(s *Store) *Driver { return &Driver{s: s, closing: make(chan struct{})} }

// Acquire implements driver.Driver: enqueue a ticket, and look at it again each
// time that it changes.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	for queued := false; ; queued = true {
		a := d.look(r, queued)
		if a.err != nil || a.grant.Token != 0 {
			return a.grant, a.err
		}
		if !queued && r.Joined != nil {
			r.Joined() // it is queued, and has to wait (D7)
		}
		expiry := time.NewTimer(a.wait)
		select {
		case <-a.changed:
		case <-expiry.C: // a lease ahead ends by itself, and nobody tells (D10)
		case <-d.closing:
		case <-ctx.Done():
			expiry.Stop()
			return driver.Grant{}, context.Cause(ctx) // the core removes the ticket (D9)
		}
		expiry.Stop()
	}
}

// answer is how a ticket stands: granted, in error, or to be looked at again.
type answer struct {
	grant   driver.Grant
	err     error
	changed <-chan struct{}
	wait    time.Duration
}

func (d *Driver) look(r driver.Request, queued bool) (a answer) {
	if d.closed() {
		return answer{err: driver.ErrClosed} // D17
	}
	asked := time.Now() // before anything is asked of the store (D11)
	d.s.update(r.Name, func(q *queue) {
		i := q.find(r.ID)
		if i < 0 && queued {
			a.err = driver.ErrLost // somebody took it out of the queue (D8)
			return
		}
		if i < 0 { // else it is asked again, and must not queue twice (D1)
			d.s.last++
			t := &ticket{Ticket: r.Ticket(d.s.last)}
			t.Since = asked
			q.tickets = append(q.tickets, t)
			i = len(q.tickets) - 1
		}
		t := q.tickets[i]
		switch {
		case t.Held:
			a.grant = driver.Grant{Token: t.Token, Asked: asked}
		case driver.Grantable(q.view(), i): // D4, D5
			t.Held, t.Since, t.until = true, time.Now(), time.Now().Add(r.TTL)
			a.grant = driver.Grant{Token: t.Token, Asked: asked}
		case !r.Wait:
			q.remove(func(o *ticket) bool { return o == t })
			a.err = driver.ErrNotAcquired // nobody has seen the ticket: all this is one request (D6)
		}
		a.changed, a.wait = q.changed, q.soonest()
	})
	return a
}

// soonest is when the next lease ends.
func (q *queue) soonest() time.Duration {
	next := time.Hour
	for _, t := range q.tickets {
		if t.Held {
			next = min(next, time.Until(t.until))
		}
	}
	return next
}

// Renew implements driver.Driver. It never shortens, and never brings back
// what is gone (D12).
func (d *Driver) Renew(_ context.Context, h driver.Hold, ttl time.Duration) error {
	if d.closed() {
		return driver.ErrClosed
	}
	err := driver.ErrLost
	d.s.update(h.Name, func(q *queue) {
		if i := q.find(h.ID); i >= 0 && q.tickets[i].Held {
			if until := time.Now().Add(ttl); until.After(q.tickets[i].until) {
				q.tickets[i].until = until
			}
			err = nil
		}
	})
	return err
}

// Release implements driver.Driver. The ID is what says whose ticket it is (D13).
func (d *Driver) Release(_ context.Context, h driver.Hold) error {
	if d.closed() {
		return driver.ErrClosed
	}
	err := driver.ErrLost
	d.s.update(h.Name, func(q *queue) {
		if q.remove(func(t *ticket) bool { return t.ID == h.ID }) {
			err = nil
		}
	})
	return err
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(_ context.Context, name string) (tickets []driver.Ticket, err error) {
	if d.closed() {
		return nil, driver.ErrClosed
	}
	d.s.update(name, func(q *queue) { tickets = q.view() })
	return tickets, nil
}

// Bounds implements driver.Bounder: a lease ends when it says, and a process
// that dies takes this store along.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds { return driver.Bounds{Crash: ttl} }

// Close implements driver.Driver. The core has released what was held.
func (d *Driver) Close() error {
	d.close.Do(func() { close(d.closing) })
	return nil
}

func (d *Driver) closed() bool {
	select {
	case <-d.closing:
		return true
	default:
		return false
	}
}
