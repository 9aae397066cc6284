package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// removeBound is the longest that one request for a removal may take.
const removeBound = time.Second

// removalsMost is how many tickets may wait to be removed while the store does not answer.
// Each acquisition in an outage may leave one, so beyond that acquisitions fail at once: the
// Client sends no request whose ticket it could not keep in its books. Only such tickets
// count. What was held or queued when the outage began is limited by itself, and says nothing
// about the next acquisition: the driver may have another store for that (compose.Fallback).
const removalsMost = 10_000

var errFull = fmt.Errorf("%w: %d tickets wait to be removed, and the store does not answer", ErrUnavailable, removalsMost)

// removals are the tickets that nobody wants any more and that the store may
// still have: the release was not answered, the acquisition was given up, or the
// lease is over by the clock on a store that keeps tickets longer. Each is
// released in the background until the store has confirmed that it is gone.
//
// While the store does not answer, one ticket at a time is tried: first what was not tried
// yet, since a driver may have several stores, or servers. After the first answer the
// others follow.
type removals struct {
	*core

	mu      sync.Mutex
	tickets schedule[*removal] // that wait to be tried
	retries []*removal         // that were not answered, in order; tried after those that are due
	trying  int                // requests under way
	failing bool               // the last request was not answered
	blind   int                // tickets with blind
	full    atomic.Bool        // while failing: blind is removalsMost
	backoff retry.Backoff      // while failing
	retryAt time.Time          // while failing: the next try
	running bool               // the goroutine runs
	closing bool               // Close has begun: everything is due
	empty   chan struct{}      // while closing: closed when nothing is left
	group   sync.WaitGroup
	wake    chan struct{}
}

// removal is one ticket.
type removal struct {
	planned
	hold       driver.Hold
	blind      bool          // the store has not answered the acquisition
	unanswered bool          // a release was sent and not answered
	checks     int           // how many of retry.LateChecks are left
	holdUntil  time.Time     // the end of its minimum hold: until then Close only shortens its lease
	answered   chan struct{} // closed by the first answer; may be nil
}

func newRemovals(c *core) *removals {
	return &removals{core: c, backoff: newBackoff(), wake: make(chan struct{}, 1)}
}

// release removes a ticket. It asks the store until it has an answer, at the
// latest until the given time, whether or not ctx is alive. Without an answer the
// ticket is added to the removals.
func (m *removals) release(ctx context.Context, h driver.Hold, until time.Time) error {
	unanswered := false
	var last error // the last one that is more than the end of a context
	for pause := newBackoff(); ; {
		d := &releaseContext{parent: ctx, until: time.Now().Add(removeBound)}
		if until.Before(d.until) {
			d.until = until
		}
		answered, err := m.ask(d, h, unanswered)
		d.close()
		if answered {
			return err
		}
		unanswered = true
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		if left := time.Until(until); left <= 0 || !retry.Sleep(m.tasks.all, min(pause.Next(), left), nil) {
			m.add(removal{hold: h, unanswered: true})
			return last
		}
	}
}

// ask sends one request, and reports whether the store has answered.
func (m *removals) ask(ctx context.Context, h driver.Hold, unanswered bool) (answered bool, err error) {
	err = m.d.Release(ctx, h)
	switch {
	case err == nil, errors.Is(err, driver.ErrClosed):
		return true, err
	case !errors.Is(err, driver.ErrLost):
		return false, err
	case unanswered: // the request before has removed it
		return true, nil
	}
	return true, err
}

// orphan adds a ticket that a failed Acquire may have left; blind: the store has not
// answered it. orphan waits for the store's first answer, at most for undoWait.
func (m *removals) orphan(h driver.Hold, blind bool) {
	answered := make(chan struct{})
	m.add(removal{hold: h, blind: blind, checks: len(retry.LateChecks), answered: answered})
	waitFor(answered, time.Now().Add(undoWait))
}

// add adds a ticket.
func (m *removals) add(r removal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.unanswered {
		m.retries = append(m.retries, &r)
	} else {
		m.tickets.put(&r)
	}
	if r.blind {
		m.blind++
	}
	m.checkFull()
	if m.running {
		signal(m.wake)
		return
	}
	m.running = true
	m.group.Go(m.work)
}

// work is the goroutine. It ends when nothing is left, or when Close has waited
// long enough.
func (m *removals) work() {
	if !repeat(m.tasks.all, 0, m.wake, m.step) {
		m.abandon()
	}
}

// step tries what is due, and returns how long to sleep; false: nothing is left.
func (m *removals) step() (pause time.Duration, more bool) {
	const idle = time.Hour
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.now()
	for len(m.tickets)+len(m.retries) > 0 && m.trying < m.parallel() {
		if wait := m.retryAt.Sub(now); m.failing && wait > 0 {
			return wait, true
		}
		r := m.next(now)
		if r == nil {
			return m.tickets[0].due.Sub(now), true
		}
		if _, ok := m.d.(driver.Shortener); !ok && now.Before(r.holdUntil) { // Close does not wait for that
			continue // its lease ends by itself
		}
		m.trying++
		m.group.Go(func() { m.try(r) })
	}
	if m.trying == 0 && len(m.tickets)+len(m.retries) == 0 {
		m.running = false
		if m.empty != nil {
			close(m.empty)
			m.empty = nil
		}
		return 0, false
	}
	return idle, true // until a try has ended
}

// next takes the ticket to try now; nil: none is due. With mu held.
func (m *removals) next(now time.Time) (r *removal) {
	switch {
	case len(m.tickets) > 0 && (m.closing || !m.tickets[0].due.After(now)):
		return m.tickets.take()
	case len(m.retries) > 0:
		r, m.retries = m.retries[0], m.retries[1:]
	}
	return r
}

// parallel is how many requests may be under way. With mu held.
func (m *removals) parallel() int {
	const most, closing = 16, 64
	switch {
	case m.failing:
		return 1
	case m.closing:
		return closing
	default:
		return most
	}
}

// shorten asks the store once to end the lease of a ticket when its minimum hold ends. It
// reports whether there is nothing more to ask for.
func (m *removals) shorten(ctx context.Context, r *removal, left time.Duration) (answered bool, err error) {
	err = m.d.(driver.Shortener).Shorten(ctx, r.hold, left)
	for _, final := range []error{nil, driver.ErrLost, driver.ErrClosed, driver.ErrUnsupported} {
		answered = answered || errors.Is(err, final)
	}
	return answered, err
}

// try asks the store once to remove a ticket or, if Close comes within its minimum hold,
// to shorten its lease.
func (m *removals) try(r *removal) {
	ctx, cancel := context.WithTimeout(m.tasks.all, removeBound)
	defer cancel()
	var (
		answered bool
		err      error
	)
	if left := r.holdUntil.Sub(m.clock.now()); left > 0 {
		answered, err = m.shorten(ctx, r, left)
	} else {
		answered, err = m.ask(ctx, r.hold, r.unanswered)
	}
	if answered && r.answered != nil {
		close(r.answered)
		r.answered = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trying--
	signal(m.wake)
	defer m.checkFull()
	if !answered {
		r.unanswered = true
		m.failing = true
		m.retryAt = m.clock.now().Add(m.backoff.Next())
		m.retries = append(m.retries, r)
		return
	}
	m.failing = false
	m.backoff.Reset()
	gone := err == nil && !r.unanswered
	if r.checks > 0 && !gone && !m.closing {
		r.due = m.clock.now().Add(retry.LateChecks[len(retry.LateChecks)-r.checks])
		r.checks--
		r.unanswered = false
		m.tickets.put(r)
	} else if r.blind {
		m.blind--
	}
}

// checkFull sets full. With mu held.
func (m *removals) checkFull() { m.full.Store(m.failing && m.blind >= removalsMost) }

// hurry makes everything due: Close has begun.
func (m *removals) hurry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing, m.retryAt = true, time.Time{}
	signal(m.wake)
}

// drain waits until the store has confirmed every removal, at the latest until the
// given time. Nothing may be added any more.
func (m *removals) drain(until time.Time) {
	m.mu.Lock()
	if !m.running {
		m.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	m.empty = empty
	m.mu.Unlock()
	waitFor(empty, until)
}

// abandon forgets what is left when the Client has been closed.
func (m *removals) abandon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets, m.retries, m.running = nil, nil, false
}

// releaseContext is the context of one request for a release. It has the values of its
// parent, outlives it, and has a deadline of its own. Like a call, it starts no timer
// before Done is called.
type releaseContext struct {
	parent context.Context
	until  time.Time

	mu     sync.Mutex
	ctx    context.Context // nil until Done is called
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (c *releaseContext) Deadline() (time.Time, bool) { return c.until, true }

// Done implements context.Context.
func (c *releaseContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.cancel = context.WithDeadline(context.WithoutCancel(c.parent), c.until)
	}
	return c.ctx.Done()
}

// Err implements context.Context.
func (c *releaseContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx != nil:
		return c.ctx.Err()
	case time.Now().Before(c.until):
		return nil
	default:
		return context.DeadlineExceeded
	}
}

// Value implements context.Context.
func (c *releaseContext) Value(key any) any {
	c.mu.Lock()
	ctx := c.ctx
	c.mu.Unlock()
	if ctx == nil {
		ctx = context.WithoutCancel(c.parent)
	}
	return ctx.Value(key)
}

func (c *releaseContext) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}
