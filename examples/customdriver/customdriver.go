// Package customdriver is a driver in one file, to read before you write your own.
// It is not complete. Its store is a map in memory. Yours is a server: where this
// driver locks a mutex, yours sends one request that the store executes as a whole (a
// script, a transaction, a compare-and-swap).
//
// The harder half of a driver is missing here, since a map has no outages: waiters
// send no heartbeats (D8), Acquire does not go on waiting through an outage after the
// ticket was queued (D7), and no request has an unknown outcome (D14). The suite skips
// the cases about these, and says so. Package driver/sqlite is a complete driver
// that is written to be read. The D-numbers are the sentences of package driver.
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

// update runs f on the queue of name, after it has removed the tickets whose lease is
// over. It deletes a queue that is empty afterwards (D18). Every method makes one call
// of it, so each request happens at one instant.
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

// remove removes tickets and wakes all waiters of the queue. A real driver should
// notify only those that become grantable.
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

// view returns the queue as the grant rule and Inspect need it.
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

// New returns a driver. A real one takes the client that the user already has.
func New(s *Store) *Driver { return &Driver{s: s, closing: make(chan struct{})} }

// Acquire implements driver.Driver. It queues a ticket, and checks it each time the
// queue changes.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	for queued := false; ; queued = true {
		a := d.check(r, queued)
		if a.err != nil || a.grant.Token != 0 {
			return a.grant, a.err
		}
		if !queued && r.Joined != nil {
			r.Joined() // it is queued and has to wait; no lock is held (D7)
		}
		expiry := time.NewTimer(a.wait)
		select {
		case <-a.changed:
		case <-expiry.C: // a lease ahead has ended by itself (D10)
		case <-d.closing:
		case <-ctx.Done():
			expiry.Stop()
			return driver.Grant{}, context.Cause(ctx) // the core removes the ticket (D9)
		}
		expiry.Stop()
	}
}

// answer is the state of a ticket: a grant, an error, or when to check it again.
type answer struct {
	grant   driver.Grant
	err     error
	changed <-chan struct{}
	wait    time.Duration
}

// check queues the ticket of r unless it is queued, and grants it if the rule says so.
func (d *Driver) check(r driver.Request, queued bool) (a answer) {
	if d.closed() {
		return answer{err: driver.ErrClosed} // D17
	}
	asked := time.Now() // before the request is sent (D11)
	d.s.update(r.Name, func(q *queue) {
		i := q.find(r.ID)
		if i < 0 && queued {
			a.err = driver.ErrLost // it was removed from the queue (D8)
			return
		}
		if i < 0 { // a repeated request must not queue a second ticket (D1)
			d.s.last++
			t := &ticket{Ticket: r.Ticket(d.s.last)}
			t.Since = asked
			q.tickets = append(q.tickets, t)
			i = len(q.tickets) - 1
		}
		t := q.tickets[i]
		switch {
		case t.Held: // the request is repeated: its lease begins anew, since Asked does (D11)
			if until := time.Now().Add(r.TTL); until.After(t.until) {
				t.until = until
			}
			a.grant = driver.Grant{Token: t.Token, Asked: asked}
		case driver.Grantable(q.view(), i): // D4, D5
			t.Held, t.Since, t.until = true, time.Now(), time.Now().Add(r.TTL)
			a.grant = driver.Grant{Token: t.Token, Asked: asked}
		case !r.Wait:
			q.remove(func(o *ticket) bool { return o == t })
			a.err = driver.ErrNotAcquired // all this is one request: nobody has seen the ticket (D6)
		}
		a.changed, a.wait = q.changed, q.soonest()
	})
	return a
}

// soonest returns the time until the next lease ends.
func (q *queue) soonest() time.Duration {
	next := time.Hour
	for _, t := range q.tickets {
		if t.Held {
			next = min(next, time.Until(t.until))
		}
	}
	return next
}

// Renew implements driver.Driver. It never shortens or revives a lease (D12).
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

// Release implements driver.Driver. The ID identifies the ticket (D13).
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

// Bounds implements driver.Bounder. A lease ends exactly at its TTL, and the store ends
// with its process.
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
