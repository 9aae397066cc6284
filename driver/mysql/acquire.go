package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Bounds of the insertion of a ticket.
const (
	insertBound = 10 * time.Second       // for its statements, whether or not their caller waits
	insertWait  = 250 * time.Millisecond // how long a release waits for them before it ends them
	insertLast  = 10 * time.Millisecond  // how long a caller whose ctx has ended waits for their answer
	insertTries = 20                     // how often a queue may be closed or reopened meanwhile
)

var errChanging = errors.New("the queue changed faster than a ticket could be inserted")

// A ticketState is what this process notes of a ticket that waits or waited, or that has an unanswered
// request. It is kept until the release of the ticket is confirmed.
type ticketState struct {
	insertion *insertion // under way; nil: none
	unknown   bool       // a request was not answered, or its answer did not reach the caller
	lateUntil time.Time  // until then such a request may still arrive
	token     uint64     // of a ticket that was queued after an anchor; 0: not known
	followed  bool       // others were queued after it when it was granted
}

// state calls f with the state of a ticket, and forgets the state if f leaves it zero.
func (d *Driver) state(id string, f func(s *ticketState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.tickets[id]
	if s == nil {
		s = new(ticketState)
		d.tickets[id] = s
	}
	if f(s); *s == (ticketState{}) {
		delete(d.tickets, id)
	}
}

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if ctx.Err() != nil {
		return driver.Grant{}, d.noTicket(r.ID, context.Cause(ctx))
	}
	d.sweepLater()
	began := time.Now()
	t, err := d.insert(ctx, r)
	switch {
	case err != nil:
		return driver.Grant{}, d.noTicket(r.ID, d.failed(ctx, err))
	case t.granted:
		return driver.Grant{Token: t.token, Asked: t.asked}, nil
	}
	w := &waiter{
		candidate: candidate{token: t.token, shared: r.Shared, permits: r.Limit},
		name:      r.Name, id: r.ID, ttl: r.TTL, late: time.Since(began) > d.opts.liveness/4, answer: make(chan answer, 1),
	}
	if !d.poller.add(w) {
		return driver.Grant{}, driver.ErrClosed
	}
	if r.Joined != nil {
		r.Joined()
	}
	g, err := d.poller.wait(ctx, w)
	if err = d.failed(ctx, err); errors.Is(err, driver.ErrLost) {
		err = d.noTicket(r.ID, err)
	}
	return g, err
}

// noTicket marks an error of Acquire if it is known that there is no ticket. ErrNotAcquired and ErrLost say so: the core
// releases no such ticket. While an earlier request for it may still arrive, there is another error in their place.
func (d *Driver) noTicket(id string, err error) error {
	gone, known := errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost), true
	d.state(id, func(s *ticketState) {
		switch {
		case !gone:
		case time.Now().Before(s.lateUntil):
			gone, err = false, driver.Unavailable(fmt.Errorf("%w (%v)", errArriving, err)) //nolint:errorlint // it is not the answer
		default:
			*s = ticketState{insertion: s.insertion} // nobody will release it
		}
		known = *s == ticketState{}
	})
	if known && !gone {
		return driver.NoTicket(err)
	}
	return err
}

// A ticket is the result of an insertion; its token is 0 if nothing was inserted.
type ticket struct {
	token   uint64
	asked   time.Time // before the statement that inserted it
	granted bool
}

// An insertion sends the statements that insert a ticket. They are not cancelled with the caller, which
// would break a connection and leave the outcome unknown. But none is begun after the caller has left.
type insertion struct {
	*driver.Request
	d      *Driver
	caller context.Context //nolint:containedctx // it bounds the wait for a connection alone
	done   chan struct{}
	cancel context.CancelFunc
}

// insert inserts a ticket in the background. Release of the ticket waits for that.
func (d *Driver) insert(ctx context.Context, r driver.Request) (ticket, error) {
	var (
		t   ticket
		err error
	)
	bounded, cancel := context.WithTimeout(d.ctx, insertBound)
	caller, gone := context.WithCancel(ctx)
	unlink := context.AfterFunc(d.ctx, gone) // Close waits for connection attempts, too
	n := &insertion{Request: &r, d: d, caller: caller, done: make(chan struct{}), cancel: cancel}
	d.state(r.ID, func(s *ticketState) { s.insertion = n })
	finish := func() {
		cancel()
		unlink()
		gone()
		d.state(r.ID, func(s *ticketState) {
			if err == nil && !t.granted {
				s.token = t.token
			}
			if s.insertion == n {
				s.insertion = nil
			}
		})
		close(n.done)
	}
	if !d.begin(func() {
		t, err = n.run(bounded)
		finish()
	}) {
		err = driver.ErrClosed
		finish()
		return ticket{}, err
	}
	select {
	case <-n.done:
		return t, err
	case <-ctx.Done():
	}
	last := time.NewTimer(insertLast)
	defer last.Stop()
	select {
	case <-n.done:
		return t, err
	case <-last.C:
	}
	d.state(r.ID, func(s *ticketState) { s.unknown = true })
	return ticket{}, context.Cause(ctx)
}

// endInsertion waits until no statement that inserts the ticket is under way. If there is
// no answer soon, because the network may be cut, the statement is given up.
func (d *Driver) endInsertion(ctx context.Context, n *insertion) error {
	if n == nil {
		return nil
	}
	wait := time.AfterFunc(insertWait, n.cancel)
	defer wait.Stop()
	select {
	case <-n.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run inserts the ticket. It sends the statements again, for the same ticket, if the connection broke.
func (n *insertion) run(ctx context.Context) (t ticket, err error) {
	for range 3 {
		if n.Wait {
			t, err = n.wait(ctx)
		} else {
			t, err = n.try(ctx)
		}
		if !broken(err) {
			break
		}
	}
	return t, err
}

// wait inserts the anchor of a free name, or a ticket after the anchor.
func (n *insertion) wait(ctx context.Context) (t ticket, err error) {
	if t, err = n.acquireIdle(ctx); err != nil || t.granted {
		return t, err
	}
	anchored := n.d.poller.watches(n.Name) // then there is an anchor, and the ticket has to wait, most likely
	for range insertTries {
		if !anchored {
			if t, err = n.acquireFree(ctx, true); err != nil || t.granted {
				return t, err
			}
			if n.Shared {
				if t, err = n.enqueue(ctx, "enqueue_granted"); err != nil || t.granted {
					return t, err
				}
			}
		}
		if t, err = n.enqueue(ctx, "enqueue"); err != nil || t.token > 0 {
			return t, err
		}
		if t, err = n.find(ctx); err != nil || t.token > 0 {
			return t, err
		}
		anchored = false
	}
	return ticket{}, errChanging
}

// try inserts a ticket only if it is granted at once. It also returns a ticket that is held since an
// earlier request of the same ID.
func (n *insertion) try(ctx context.Context) (t ticket, err error) {
	if t, err = n.acquireIdle(ctx); err != nil || t.granted {
		return t, err
	}
	for range insertTries {
		if t, err = n.acquireFree(ctx, false); err != nil || t.granted {
			return t, err
		}
		grantable, err := n.d.grantable(ctx, *n.Request)
		if err != nil {
			return ticket{}, err
		}
		if !grantable {
			return ticket{}, driver.ErrNotAcquired
		}
		if t, err = n.acquireFree(ctx, true); err != nil || t.granted {
			return t, err
		}
		if t, err = n.enqueue(ctx, "enqueue_granted"); err != nil || t.granted {
			return t, err
		}
		if t, err = n.find(ctx); err != nil || t.granted {
			return t, err
		}
		if t.token > 0 { // it waits since an earlier request
			if _, err := n.d.remove(ctx, n.Hold(t.token), true); err != nil {
				return ticket{}, err
			}
		}
	}
	return ticket{}, errChanging
}

// acquireFree inserts the anchor of a free name. The ticket is not granted if the name has an anchor; with
// follow the anchor stays from now on.
func (n *insertion) acquireFree(ctx context.Context, follow bool) (ticket, error) {
	for try := 0; ; try++ {
		r, asked, err := n.exec(ctx, "acquire_free", values{follow: follow})
		if code(err) != errNull || try == 2 {
			if err != nil {
				return ticket{}, err
			}
			seq, err := r.LastInsertId()
			t := ticket{token: uint64(seq) * turns, asked: asked, granted: seq > 0} //nolint:gosec // counts from 1
			n.d.anchors.granted(n.Request, t)
			return t, err
		}
		if err := n.d.renewServer(ctx, try); err != nil {
			return ticket{}, err
		}
	}
}

// acquireIdle takes the anchor that this process has left idle, if there is one.
func (n *insertion) acquireIdle(ctx context.Context) (ticket, error) {
	token := n.d.anchors.idle(n.Request)
	if token == 0 {
		return ticket{}, nil
	}
	r, asked, err := n.exec(ctx, "acquire_idle", values{token: token})
	if err != nil {
		return ticket{}, err
	}
	changed, err := r.RowsAffected()
	t := ticket{token: token + 1, asked: asked, granted: changed > 0}
	if err != nil || !t.granted {
		return ticket{}, err
	}
	n.d.anchors.granted(n.Request, t)
	return t, nil
}

// enqueue inserts the ticket after the anchor. It inserts nothing if there is no anchor, if the anchor is
// the ticket's own, or if the statement requires a grant that is not possible.
func (n *insertion) enqueue(ctx context.Context, statement string) (ticket, error) {
	r, asked, err := n.exec(ctx, statement, values{})
	if isOneOf(err, errDuplicate, errNull) {
		return ticket{}, nil
	}
	if err != nil {
		return ticket{}, err
	}
	seq, err := r.LastInsertId()
	return ticket{token: uint64(seq) * turns, asked: asked, granted: statement == "enqueue_granted"}, err //nolint:gosec // counts from 1
}

// exec sends a statement that inserts the ticket, unless the caller has left before there is a connection.
func (n *insertion) exec(ctx context.Context, name string, v values) (r sql.Result, asked time.Time, err error) {
	s, err := n.d.server(n.caller)
	if err != nil {
		return nil, asked, err
	}
	asked = time.Now()
	late := asked.Add(arriveBound)
	v.name, v.id, v.owner, v.note, v.shared, v.permits = n.Name, n.ID, n.Owner, n.Note, n.Shared, n.Limit
	v.ttl, v.liveness, v.deadline, v.start = n.TTL, n.d.opts.liveness, s.at(late), s.start
	text := n.d.w.render(name, v)
	err = n.d.retry(ctx, func() error {
		return n.d.with(n.caller, func(c *sql.Conn) (err error) {
			if r, err = c.ExecContext(ctx, text); unanswered(err) {
				n.d.state(n.ID, func(s *ticketState) { s.unknown, s.lateUntil = true, late })
			}
			return err
		})
	})
	return r, asked, err
}

// find finds the ticket that an earlier request of the same ID inserted. The lease of a
// holder counts from now.
func (n *insertion) find(ctx context.Context) (t ticket, err error) {
	if t.token, err = n.d.find(ctx, n.Name, n.ID); err != nil || t.token == 0 {
		return ticket{}, err
	}
	t.asked = time.Now()
	err = n.d.Renew(ctx, n.Hold(t.token), n.TTL)
	t.granted = err == nil
	if errors.Is(err, driver.ErrLost) {
		err = nil // it waits
	}
	return t, err
}

// claim makes grantable tickets holders, and returns the tokens of those that are holders now, in order.
func (d *Driver) claim(ctx context.Context, tokens []uint64, ttl time.Duration) ([]uint64, error) {
	slices.Sort(tokens)
	v := values{tokens: tokens, ttl: ttl}
	n, err := d.change(ctx, "claim", v)
	if err != nil || n == int64(len(tokens)) {
		return tokens, err
	}
	return d.tokens(ctx, "claimed", v)
}
