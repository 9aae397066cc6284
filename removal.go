package locker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// removeBound is the longest that one request for a removal may take.
const removeBound = time.Second

// removals are the tickets that nobody wants any more and that the store may
// still have: the release was not answered, the acquisition was given up, or the
// lease is over by the clock on a store that keeps tickets longer. Each is
// released in the background until the store has confirmed that it is gone.
//
// While the store does not answer, one ticket at a time is tried. After the first
// answer the others follow.
type removals struct {
	*core

	mu      sync.Mutex
	tickets schedule[*removal] // that wait to be tried
	trying  int                // requests under way
	failing bool               // the last request was not answered
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
	unanswered bool          // a release was sent and not answered
	checks     int           // how many of retry.Late are left
	minHold    bool          // released or lost within its minimum hold: Close leaves it out
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

// orphan adds a ticket that a failed Acquire may have left. It waits for the store's
// first answer, at most for undoWait.
func (m *removals) orphan(h driver.Hold) {
	answered := make(chan struct{})
	m.add(removal{hold: h, checks: len(retry.Late), answered: answered})
	t := time.NewTimer(undoWait)
	defer t.Stop()
	select {
	case <-answered:
	case <-t.C:
	}
}

// add adds a ticket.
func (m *removals) add(r removal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets.put(&r)
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
	for len(m.tickets) > 0 && m.trying < m.parallel() {
		first := m.tickets[0].due
		if m.failing && m.retryAt.After(first) {
			first = m.retryAt
		}
		if wait := first.Sub(now); wait > 0 && (m.failing || !m.closing) {
			return wait, true
		}
		r := m.tickets.take()
		if r.minHold && now.Before(r.due) { // Close does not wait for that
			continue // its lease ends by itself
		}
		r.minHold = false // it is over, whatever the store answers
		m.trying++
		m.group.Go(func() { m.try(r) })
	}
	if m.trying == 0 && len(m.tickets) == 0 {
		m.running = false
		if m.empty != nil {
			close(m.empty)
			m.empty = nil
		}
		return 0, false
	}
	return idle, true // until a try has ended
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

// try asks the store once to remove a ticket.
func (m *removals) try(r *removal) {
	ctx, cancel := context.WithTimeout(m.tasks.all, removeBound)
	defer cancel()
	answered, err := m.ask(ctx, r.hold, r.unanswered)
	if answered && r.answered != nil {
		close(r.answered)
		r.answered = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trying--
	signal(m.wake)
	if !answered {
		r.unanswered = true
		m.failing = true
		m.retryAt = m.clock.now().Add(m.backoff.Next())
		r.due = m.retryAt
		m.tickets.put(r)
		return
	}
	m.failing = false
	m.backoff.Reset()
	gone := err == nil && !r.unanswered
	if r.checks > 0 && !gone && !m.closing {
		r.due = m.clock.now().Add(retry.Late[len(retry.Late)-r.checks])
		r.checks--
		r.unanswered = false
		m.tickets.put(r)
	}
}

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
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
	}
}

// abandon forgets what is left when the Client has been closed.
func (m *removals) abandon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets, m.running = nil, false
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
