package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/marked"
)

// call is one call of a method that asks the store, and the context that the
// driver gets for it. The context ends with its parent, when Close begins, when
// the store has not answered in time, and at the wait limit.
//
// It starts no timer before Done is called. An uncontended acquisition on a store
// without a network never calls Done.
type call struct {
	core   *core
	parent context.Context // the caller's
	begun  time.Time
	wait   time.Duration // the wait limit, counted from begun; 0: none
	queues bool          // the call may wait in a queue, for longer than an answer may take

	mu     sync.Mutex
	ctx    context.Context // nil until Done is called
	cancel context.CancelCauseFunc
	unlink func() bool // undoes the link to the beginning of Close
	asked  time.Time   // the bound for the store's answer counts from here; zero: no answer is due
	answer *time.Timer // that bound
	limit  *time.Timer // the wait limit
	queued bool        // the store has confirmed that the ticket is queued
	watch  bool        // meanwhile the core asks whether the store answers
	due    time.Time   // queued: since when the store owes an answer all the same; zero: it owes none
	ended  bool        // the call has returned
}

// errWaitOver is the cause with which a call ends at its wait limit.
var errWaitOver = errors.New("the wait limit has passed")

// errNoAnswer marks the cause with which a call ends when the store has not answered in time.
var errNoAnswer = errors.New("no answer")

func noAnswer(bound time.Duration) error {
	return &marked.Error{Err: fmt.Errorf("the store did not answer within %v", bound.Round(time.Millisecond)), Sentinel: errNoAnswer}
}

// ask makes one request to the store for a caller.
func (c *core) ask(ctx context.Context, request func(context.Context) error) error {
	var l call
	if err := l.begin(ctx, c); err != nil {
		return err
	}
	defer l.end()
	return l.ask(request)
}

// ask makes a request to the store within the limits of the call.
func (c *call) ask(request func(context.Context) error) error { return c.explain(request(c)) }

// begin begins the call. If it returns nil, the caller calls end.
func (c *call) begin(ctx context.Context, shared *core) error {
	if shared.invalid != nil {
		return shared.invalid
	}
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if !shared.tasks.begin() {
		return ErrClosed
	}
	c.core, c.parent, c.begun = shared, ctx, time.Now()
	c.asked = c.begun
	return nil
}

// end ends the context and frees what it has started.
func (c *call) end() {
	defer c.core.tasks.done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.setWaiting(false, false)
	if c.ctx == nil {
		return
	}
	c.unlink()
	c.stopAnswerTimer()
	if c.limit != nil {
		c.limit.Stop()
	}
	c.cancel(nil)
}

// Deadline implements context.Context. The wait limit is one. The bound for the answer of
// a call that may queue is none, since it is lifted once the ticket is queued.
func (c *call) Deadline() (time.Time, bool) {
	deadline, ok := c.parent.Deadline()
	if bound := c.begun.Add(c.core.answerTimeout); !c.queues && (!ok || bound.Before(deadline)) {
		deadline, ok = bound, true
	}
	if limit := c.begun.Add(c.wait); c.wait > 0 && (!ok || limit.Before(deadline)) {
		return limit, true
	}
	return deadline, ok
}

// Done implements context.Context.
func (c *call) Done() <-chan struct{} { return c.start().Done() }

// Err implements context.Context.
func (c *call) Err() error {
	if ctx := c.started(); ctx != nil {
		return ctx.Err()
	}
	return c.parent.Err()
}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if ctx := c.started(); ctx != nil {
		return ctx.Value(key) // package context finds the cause in it, and attaches children without a goroutine
	}
	return withoutCause(c.parent).Value(key)
}

func (c *call) started() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx
}

// start makes the context behind the call the first time it is needed.
func (c *call) start() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil {
		return c.ctx
	}
	c.ctx, c.cancel = context.WithCancelCause(withoutCause(c.parent))
	if c.ended {
		c.cancel(nil)
		return c.ctx
	}
	c.unlink = context.AfterFunc(c.core.tasks.live, func() { c.cancel(ErrClosed) })
	if c.core.tasks.live.Err() != nil { // AfterFunc cancels in a goroutine of its own, which may be late
		c.cancel(ErrClosed)
	}
	c.startAnswerTimer()
	if c.wait > 0 {
		c.startLimit()
	}
	return c.ctx
}

// startLimit ends the context at the wait limit: at once if that has passed, so that nothing is asked after the deadline.
// With mu held.
func (c *call) startLimit() {
	left := time.Until(c.begun.Add(c.wait))
	if left <= 0 {
		c.cancel(errWaitOver)
		return
	}
	c.limit = time.AfterFunc(left, func() { c.cancel(errWaitOver) })
}

// startAnswerTimer gives the store answerTimeout from asked. With mu held.
func (c *call) startAnswerTimer() {
	if c.ctx == nil || c.asked.IsZero() {
		return
	}
	bound := c.core.answerTimeout
	c.answer = time.AfterFunc(time.Until(c.asked.Add(bound)), func() { c.cancel(noAnswer(bound)) })
}

// stopAnswerTimer stops the timer, if it runs. With mu held.
func (c *call) stopAnswerTimer() {
	if c.answer != nil {
		c.answer.Stop()
		c.answer = nil
	}
}

// expectAnswer starts the bound for the store's answer anew, if it was lifted.
func (c *call) expectAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setWaiting(false, false)
	if c.asked.IsZero() {
		c.asked = time.Now()
		c.startAnswerTimer()
	}
}

// setQueued records that the ticket is queued. It lifts the bound for the store's
// answer: none is due until the grant. With watch, the core asks meanwhile whether the
// store answers.
func (c *call) setQueued(watch bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setWaiting(true, watch)
	c.asked, c.due = time.Time{}, time.Time{}
	c.stopAnswerTimer()
}

// setDue records that a call that was queued asks the store again, for another ticket or to
// confirm a grant. There is no bound for the answer, but its absence is an outage.
func (c *call) setDue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = time.Now()
}

// setWaiting sets queued, and has the core watch the store while watch is set. With mu held.
func (c *call) setWaiting(queued, watch bool) {
	switch {
	case watch && !c.watch:
		c.core.beginWait()
	case !watch && c.watch:
		c.core.endWait()
	}
	c.queued, c.watch = queued, watch
}

// away returns why the store counts as away; nil: it does not, or nobody asks it for this call.
func (c *call) away() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.watch:
		return c.core.away()
	case !c.due.IsZero() && time.Since(c.due) >= pingBound:
		return driver.Unavailable(noAnswer(pingBound))
	}
	return nil
}

func (c *call) isQueued() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued
}

// explain turns the driver's error into the caller's: the reason why the call has
// ended, joined with the store's own error. Nil stays nil.
func (c *call) explain(err error) error {
	c.checkLimit(err)
	if err == nil || c.Err() == nil {
		return unanswered(err)
	}
	cause, ended := context.Cause(c), c.parent.Err()
	waitOver := c.wait > 0 && errors.Is(cause, errWaitOver)
	if ended != nil && errors.Is(cause, ended) {
		cause = context.Cause(c.parent)
	}
	switch {
	case ended == nil && errors.Is(cause, ErrClosed):
		return because(err, ErrClosed)
	case ended == nil && errors.Is(cause, errNoAnswer):
		return because(err, ErrUnavailable, cause)
	case waitOver && c.isQueued():
		return c.endOfWait(err, ErrNotAcquired, cause)
	case waitOver:
		return because(err, ErrUnavailable, noAnswer(c.wait), cause)
	case c.isQueued():
		return c.endOfWait(err, ended, foreign(ended, cause))
	default:
		return because(err, ErrUnavailable, ended, foreign(ended, cause))
	}
}

// checkLimit ends the call if its wait limit has passed and the driver has failed. A driver
// may hand the deadline to a connection: its error may come before the call's own timer.
func (c *call) checkLimit(err error) {
	if err != nil && c.wait > 0 && time.Since(c.begun) >= c.wait {
		c.start()
		c.cancel(errWaitOver)
	}
}

// endOfWait joins the reasons why a wait in the queue has ended with the store's error. If
// the store is away and its error does not say so, endOfWait does.
func (c *call) endOfWait(err error, reasons ...error) error {
	explained := because(err, reasons...)
	if errors.Is(explained, ErrUnavailable) {
		return explained
	}
	return because(err, append(reasons, c.away())...)
}

// uncaused is a context without the cause of its end.
type uncaused struct {
	context.Context
	values context.Context
}

// withoutCause hides the cause of ctx's end from the driver, which would return it. The
// cause may be anything, such as the error of another acquisition. It says nothing about
// the store's answer to this one.
func withoutCause(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx // it never ends
	}
	return uncaused{ctx, context.WithoutCancel(ctx)}
}

// Value implements context.Context. Package context finds no cause in it.
func (u uncaused) Value(key any) any { return u.values.Value(key) }

// AfterFunc lets package context attach a child without a goroutine.
func (u uncaused) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(u.Context, f) }
