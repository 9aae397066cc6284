package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements Locker.
func (c *Client) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	k, err := c.obtain(ctx, name, false, opts)
	if err != nil {
		return nil, c.fail("acquire", name, err)
	}
	return k, nil
}

// TryAcquire implements Locker.
func (c *Client) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	k, err := c.obtain(ctx, name, true, opts)
	if err != nil {
		return nil, c.fail("try to acquire", name, err)
	}
	return k, nil
}

// obtain checks the arguments, and re-enters or queues.
func (c *Client) obtain(ctx context.Context, name string, try bool, opts []Option) (*Lock, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	a := &acquisition{parent: ctx, c: c, name: name, try: try}
	if err := a.r.read(ctx, c, opts); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	if !c.tasks.begin() {
		return nil, ErrClosed
	}
	defer c.tasks.done()
	a.begun = time.Now()
	a.asked = a.begun
	a.try = try || a.r.limited && a.r.wait == 0
	if len(c.observers) > 0 {
		a.id = acquisitions.Add(1)
	}
	defer a.close()
	k, err := a.obtain()
	if err != nil && len(c.observers) > 0 {
		c.tell(ctx, a.event(EventFailed, err))
	}
	return k, err
}

// acquisition is one call of Acquire or TryAcquire, and the context that the
// driver gets for it. It ends with its parent, with the wait limit, when Close
// begins, and when the store has not answered in time before the ticket was
// queued.
//
// It is made for each call, so it costs nothing until somebody asks for
// Done: an uncontended one on a store without a network never does.
type acquisition struct {
	parent context.Context
	c      *Client
	name   string
	r      request
	try    bool      // do not wait
	begun  time.Time // of the call
	id     uint64    // for observers
	e      *entry    // of an explicit owner, or nil
	waited bool      // EventWaiting was told

	mu     sync.Mutex
	ctx    context.Context // nil until Done was asked for
	cancel context.CancelCauseFunc
	stop   func() bool // of the link to the end of the Client
	answer *time.Timer // the bound for the store's answer
	limit  *time.Timer // the wait limit
	asked  time.Time   // from when that counts
	queued bool        // the store has said that the ticket is queued
	parked bool        // waiting for another goroutine's acquisition
	ended  bool        // the call has returned
}

// undoWait is how long a call that has failed waits for its ticket to be
// removed. A driver returns within 50 ms after the end of its context, and a
// caller gets the answer within 100 ms after the end of his.
const undoWait = 30 * time.Millisecond

// brief is how long an acquisition may take without a look at whether the machine
// was suspended meanwhile.
const brief = 20 * time.Microsecond

// errWaitOver is the cause with which an acquisition ends at its wait limit.
var errWaitOver = errors.New("the wait limit has passed")

// noAnswer is the cause with which a request ends that the store did not answer.
func noAnswer(bound time.Duration) error {
	return &timeoutError{fmt.Sprintf("the store did not answer within %v", bound.Round(time.Millisecond))}
}

type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }

// obtain re-enters or queues.
func (a *acquisition) obtain() (*Lock, error) {
	if !a.r.noReentry {
		if k := a.outer(); k != nil {
			inner, err := a.reenter(k.lease)
			if !errors.Is(err, errEnded) {
				return inner, err
			}
		}
		if a.r.owned {
			return a.obtainOwned()
		}
	}
	return a.queue()
}

// queue takes a ticket and waits for its grant. When the ticket was lost in an
// outage it takes another one.
func (a *acquisition) queue() (*Lock, error) {
	if most := driver.BoundsOf(a.c.d, a.r.leaseLength()).MaxTTL; most > 0 && a.r.minHold > most {
		return nil, fmt.Errorf("%w: a minimum hold of %v: this store can give at most %v", ErrUnsupported, a.r.minHold, most)
	}
	req := a.request()
	again := false // the ticket was lost, and another one is asked for
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		req.ID = a.c.newID()
		k, err := a.once(req)
		switch {
		case err == nil || a.try || a.Err() != nil:
			return k, err
		case errors.Is(err, driver.ErrLost):
			again = true
			a.c.tell(a.parent, a.event(EventRejoined, err))
		case !again || !errors.Is(err, ErrUnavailable):
			return nil, err
		}
		if !sleep(a, delay) {
			return nil, a.explain(err)
		}
	}
}

func (a *acquisition) request() driver.Request {
	r := &a.r
	req := driver.Request{
		Name: a.name, Owner: a.owner(), Note: r.note,
		Shared: r.shared, Limit: r.limit,
		TTL: a.c.storeTTL(r.leaseLength()), Renewed: !r.fixed, Wait: !a.try, MinHold: r.minHold,
	}
	if !a.try {
		req.Joined = a.inQueue
	}
	return req
}

// owner is whom the ticket is for.
func (a *acquisition) owner() string {
	if a.r.owned {
		return a.r.owner
	}
	return a.c.process
}

// once asks the store with one ticket. When that fails, and the store may have
// the ticket, it is removed, in the background if need be.
func (a *acquisition) once(req driver.Request) (*Lock, error) {
	g, asked, err := a.ask(req)
	if err == nil {
		return a.adopt(req, g, asked)
	}
	switch {
	case errors.Is(err, driver.ErrNotAcquired):
		return nil, err
	case errors.Is(err, driver.ErrLost) && a.Err() == nil:
		return nil, err
	case !errors.Is(err, driver.ErrNoTicket):
		a.c.removals.orphan(req.Hold(0), undoWait)
	}
	return nil, a.explain(err)
}

// ask asks the store for a grant, and says by the core's clock from when it counts.
// A provisional lease of which the safety margin leaves too little to renew it in
// time gives way to the whole one at once.
func (a *acquisition) ask(req driver.Request) (g driver.Grant, asked time.Time, err error) {
	c := a.c
	offset := c.clock.lastOffset()
	g, err = c.d.Acquire(a, req)
	switch {
	case err != nil:
	case g.TTL > 0 && c.margin >= g.TTL:
		err = fmt.Errorf("%w: a safety margin of %v: this store gives a lease of %v", ErrUnsupported, c.margin, g.TTL)
	case g.Claim > 0 && c.margin > g.Claim/3:
		offset = c.clock.lastOffset()
		g.Asked, g.Claim = time.Now(), 0
		err = c.d.Renew(a, req.Hold(g.Token), req.TTL)
	}
	return g, g.Asked.Add(offset), err
}

// adopt makes a lease of a grant, unless it is over already or the Client was
// closed meanwhile.
func (a *acquisition) adopt(req driver.Request, g driver.Grant, asked time.Time) (*Lock, error) {
	c := a.c
	now := c.clock.recent()
	if now.Sub(asked) > brief {
		now = c.clock.now()
	}
	l, k := newLease(a, req, g, asked, now)
	if a.e != nil {
		a.e.set(l)
	}
	l.observed.lock() // whoever ends the lease tells of that after the grant
	defer l.observed.unlock()
	if err := c.leases.add(l, now); err != nil {
		if a.e != nil {
			a.e.set(nil)
		}
		c.removals.orphan(l.hold, undoWait)
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: the answer came %v after it was asked for, when the lease of %v was over",
			driver.ErrLost, now.Sub(asked).Round(time.Millisecond), l.ttl)
	}
	if l.observed != nil {
		e := l.event(EventAcquired, time.Since(a.begun), nil)
		e.Waited, e.Degraded = a.waited, g.Degraded
		c.tell(a.parent, e)
	}
	return k, nil
}

// event is an Event about an acquisition.
func (a *acquisition) event(kind EventKind, err error) Event {
	return Event{
		Kind: kind, ID: a.id, Name: a.name, Owner: a.owner(), Shared: a.r.shared,
		Elapsed: time.Since(a.begun), Waited: a.waited, Err: err,
	}
}

// inQueue is called when the store has said that the ticket is queued.
func (a *acquisition) inQueue() {
	a.mu.Lock()
	a.queued = true
	a.unbound()
	a.mu.Unlock()
	if a.e != nil {
		a.e.inQueue()
	}
	a.waits()
}

// waits tells the observers, once, that the call waits.
func (a *acquisition) waits() {
	if a.waited || len(a.c.observers) == 0 {
		return
	}
	a.waited = true
	e := a.event(EventWaiting, nil)
	e.Waited = false
	a.c.tell(a.parent, e)
}

func (a *acquisition) wasQueued() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queued
}

// unbound takes back the bound for the store's answer. With mu held.
func (a *acquisition) unbound() {
	if a.answer != nil {
		a.answer.Stop()
		a.answer = nil
	}
}

// explain turns the driver's error into what the caller is told: why the
// acquisition ended, joined with what the store said of itself.
func (a *acquisition) explain(err error) error {
	if a.Err() == nil {
		return unanswered(err)
	}
	cause := context.Cause(a)
	var timeout *timeoutError
	switch {
	case errors.Is(cause, ErrClosed) && a.parent.Err() == nil:
		return because(err, ErrClosed)
	case errors.As(cause, &timeout) && a.parent.Err() == nil:
		return because(err, ErrUnavailable, cause)
	case errors.Is(cause, errWaitOver) && a.wasQueued():
		return because(err, ErrNotAcquired, cause)
	case errors.Is(cause, errWaitOver):
		return because(err, ErrUnavailable, noAnswer(a.r.wait))
	case a.wasQueued():
		return because(err, a.parent.Err(), cause)
	default:
		return because(err, ErrUnavailable, a.parent.Err(), cause)
	}
}
