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
	closing bool               // Close has begun: everything is due
	done    chan struct{}      // closed when the goroutine ends; nil: it does not run
	group   sync.WaitGroup
	wake    chan struct{}
}

// removal is one ticket.
type removal struct {
	heapNode
	hold       driver.Hold
	blind      bool          // the store has not answered the acquisition
	unanswered bool          // a release was sent and not answered
	checks     int           // how many of retry.LateChecks are left
	holdUntil  time.Time     // the end of its minimum hold: until then Close only shortens its lease
	answered   chan struct{} // closed by the first answer; may be nil
}

func newRemovals(c *core) *removals {
	return &removals{core: c, backoff: retry.Usual(), wake: make(chan struct{}, 1)}
}

// releaseUntil removes a ticket. It asks the store until it has an answer, at the
// latest until the given time, whether or not ctx is alive. Without an answer the
// ticket is added to the removals.
func (rm *removals) releaseUntil(ctx context.Context, h driver.Hold, until time.Time) error {
	unanswered := false
	var last error // the last one that is more than the end of a context
	for pause := retry.Usual(); ; {
		d := &releaseContext{parent: ctx, until: time.Now().Add(removeBound)}
		if until.Before(d.until) {
			d.until = until
		}
		answered, err := rm.releaseOnce(d, h, unanswered)
		d.close()
		if answered {
			return err
		}
		unanswered = true
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		if left := time.Until(until); left <= 0 || !retry.Sleep(rm.tasks.all, min(pause.Next(), left), nil) {
			rm.add(removal{hold: h, unanswered: true})
			return last
		}
	}
}

// releaseOnce sends one request, and reports whether the store has answered.
func (rm *removals) releaseOnce(ctx context.Context, h driver.Hold, unanswered bool) (answered bool, err error) {
	err = rm.d.Release(ctx, h)
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
func (rm *removals) orphan(h driver.Hold, blind bool) {
	answered := make(chan struct{})
	rm.add(removal{hold: h, blind: blind, checks: len(retry.LateChecks), answered: answered})
	waitFor(answered, time.Now().Add(undoWait))
}

// add adds a ticket.
func (rm *removals) add(r removal) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if r.unanswered {
		rm.retries = append(rm.retries, &r)
	} else {
		rm.tickets.put(&r)
	}
	if r.blind {
		rm.blind++
	}
	rm.checkFull()
	if rm.done != nil {
		signal(rm.wake)
		return
	}
	rm.done = make(chan struct{})
	rm.group.Go(rm.work)
}

// work is the goroutine. It ends when nothing is left, or when Close has waited
// long enough.
func (rm *removals) work() {
	if !repeat(rm.tasks.all, 0, rm.wake, rm.step) {
		rm.forgetAll()
	}
}

// step tries what is due, and returns how long to sleep; false: nothing is left.
func (rm *removals) step() (pause time.Duration, more bool) {
	const idle = time.Hour
	rm.mu.Lock()
	defer rm.mu.Unlock()
	now := rm.clock.now()
	for len(rm.tickets)+len(rm.retries) > 0 && rm.trying < rm.parallel() {
		if wait := rm.retryAt.Sub(now); rm.failing && wait > 0 {
			return wait, true
		}
		r := rm.next(now)
		if r == nil {
			return rm.tickets[0].due.Sub(now), true
		}
		if _, ok := rm.d.(driver.Shortener); !ok && now.Before(r.holdUntil) { // Close does not wait for that
			continue // its lease ends by itself
		}
		rm.trying++
		rm.group.Go(func() { rm.try(r) })
	}
	if rm.trying == 0 && len(rm.tickets)+len(rm.retries) == 0 {
		rm.end()
		return 0, false
	}
	return idle, true // until a try has ended
}

// next takes the ticket to try now; nil: none is due. With mu held.
func (rm *removals) next(now time.Time) (r *removal) {
	switch {
	case len(rm.tickets) > 0 && (rm.closing || !rm.tickets[0].due.After(now)):
		return rm.tickets.take()
	case len(rm.retries) > 0:
		r, rm.retries = rm.retries[0], rm.retries[1:]
	}
	return r
}

// parallel is how many requests may be under way. With mu held.
func (rm *removals) parallel() int {
	const most, closing = 16, 64
	switch {
	case rm.failing:
		return 1
	case rm.closing:
		return closing
	default:
		return most
	}
}

// shorten asks the store once to end the lease of a ticket when its minimum hold ends. It
// reports whether there is nothing more to ask for.
func (rm *removals) shorten(ctx context.Context, r *removal, left time.Duration) (answered bool, err error) {
	err = rm.d.(driver.Shortener).Shorten(ctx, r.hold, left)
	for _, final := range []error{nil, driver.ErrLost, driver.ErrClosed, driver.ErrUnsupported} {
		answered = answered || errors.Is(err, final)
	}
	return answered, err
}

// try asks the store once to remove a ticket or, if Close comes within its minimum hold,
// to shorten its lease.
func (rm *removals) try(r *removal) {
	ctx, cancel := context.WithTimeout(rm.tasks.all, removeBound)
	defer cancel()
	var (
		answered bool
		err      error
	)
	if left := r.holdUntil.Sub(rm.clock.now()); left > 0 {
		answered, err = rm.shorten(ctx, r, left)
	} else {
		answered, err = rm.releaseOnce(ctx, r.hold, r.unanswered)
	}
	if answered && r.answered != nil {
		close(r.answered)
		r.answered = nil
	}
	rm.mu.Lock()
	defer rm.mu.Unlock()
	rm.trying--
	signal(rm.wake)
	defer rm.checkFull()
	if !answered {
		r.unanswered = true
		rm.failing = true
		rm.retryAt = rm.clock.now().Add(rm.backoff.Next())
		rm.retries = append(rm.retries, r)
		return
	}
	rm.failing = false
	rm.backoff.Reset()
	gone := err == nil && !r.unanswered
	if r.checks > 0 && !gone && !rm.closing {
		r.due = rm.clock.now().Add(retry.LateChecks[len(retry.LateChecks)-r.checks])
		r.checks--
		r.unanswered = false
		rm.tickets.put(r)
	} else if r.blind {
		rm.blind--
	}
}

// checkFull sets full. With mu held.
func (rm *removals) checkFull() { rm.full.Store(rm.failing && rm.blind >= removalsMost) }

// startClosing makes everything due: Close has begun.
func (rm *removals) startClosing() {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	rm.closing, rm.retryAt = true, time.Time{}
	signal(rm.wake)
}

// waitEmpty waits until the store has confirmed every removal, at the latest until the
// given time. Nothing may be added any more.
func (rm *removals) waitEmpty(until time.Time) {
	rm.mu.Lock()
	done := rm.done
	rm.mu.Unlock()
	if done != nil {
		waitFor(done, until)
	}
}

// forgetAll forgets what is left when the Client has been closed.
func (rm *removals) forgetAll() {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	rm.tickets, rm.retries = nil, nil
	rm.end()
}

// end says that the goroutine ends. With mu held.
func (rm *removals) end() {
	close(rm.done)
	rm.done = nil
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
