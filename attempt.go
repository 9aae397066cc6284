package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// attempt is the context of one acquisition. It ends with its parent, with the
// wait limit, with Close, and when the store has not answered for joinBound
// before the ticket stood in line.
//
// It is made for each acquisition, so it costs nothing until somebody asks for
// Done: an uncontended one on a store without a network never does.
type attempt struct {
	parent context.Context
	c      *Client
	begun  time.Time
	name   string
	r      request
	e      *entry // of an explicit owner, or nil

	mu     sync.Mutex
	ctx    context.Context // nil until Done was asked for
	cancel context.CancelCauseFunc
	join   *time.Timer
	wait   *time.Timer
	queued bool
}

// Causes for which an attempt ends, beside its parent's and ErrClosed.
var (
	errWaitOver = errors.New("the wait limit has passed")
	errNoAnswer = fmt.Errorf("the store did not answer within %v", joinBound)
)

func (a *attempt) Deadline() (time.Time, bool) { return a.parent.Deadline() }

func (a *attempt) Done() <-chan struct{} { return a.real().Done() }

func (a *attempt) Err() error {
	if ctx := a.started(); ctx != nil {
		return ctx.Err()
	}
	return a.parent.Err()
}

func (a *attempt) Value(key any) any {
	if ctx := a.started(); ctx != nil {
		return ctx.Value(key) // lets context find the cause, and children attach without a goroutine
	}
	return a.parent.Value(key)
}

func (a *attempt) started() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// real starts the context behind a.
func (a *attempt) real() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx != nil {
		return a.ctx
	}
	a.ctx, a.cancel = context.WithCancelCause(a.parent)
	if !a.c.register(a) {
		a.cancel(ErrClosed)
		return a.ctx
	}
	if !a.queued {
		a.join = time.AfterFunc(time.Until(a.begun.Add(joinBound)), func() { a.cancel(errNoAnswer) })
	}
	if a.r.limited && a.r.wait > 0 {
		a.wait = time.AfterFunc(time.Until(a.begun.Add(a.r.wait)), func() { a.cancel(errWaitOver) })
	}
	return a.ctx
}

// inLine is called when there is something to wait for: the driver tells that
// the store has answered and the ticket stands in line.
func (a *attempt) inLine() {
	a.mu.Lock()
	first := !a.queued
	a.queued = true
	if a.join != nil {
		a.join.Stop()
	}
	a.mu.Unlock()
	if first {
		a.c.waiting(a)
	}
}

// end cancels a for a cause.
func (a *attempt) end(cause error) {
	a.real()
	a.cancel(cause)
}

// close frees what a has started.
func (a *attempt) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil {
		return
	}
	if a.join != nil {
		a.join.Stop()
	}
	if a.wait != nil {
		a.wait.Stop()
	}
	a.c.unregister(a)
	a.cancel(nil)
}

// explain turns the driver's error into what the caller is told: why the
// attempt ended, joined with what the store said of itself.
func (a *attempt) explain(err error) error {
	if a.Err() == nil {
		return err
	}
	switch cause := context.Cause(a); {
	case errors.Is(cause, errWaitOver):
		return because(ErrNotAcquired, cause, err)
	case errors.Is(cause, ErrClosed):
		return because(ErrClosed, nil, err)
	case errors.Is(cause, errNoAnswer):
		return because(errNoAnswer, nil, err)
	default:
		return because(a.parent.Err(), cause, err)
	}
}

// because joins why an attempt ended with the store's error, leaving out the
// parts that say no more than that a context has ended.
func because(why, cause, err error) error {
	errs := []error{why}
	if cause != nil && !errors.Is(why, cause) {
		errs = append(errs, cause)
	}
	for _, e := range leaves(err) {
		if e != context.Canceled && e != context.DeadlineExceeded && //nolint:errorlint // the bare sentinels
			!errors.Is(why, e) && e != cause { //nolint:errorlint // the very same error
			errs = append(errs, e)
		}
	}
	if len(errs) == 1 {
		return why
	}
	return causes(errs)
}

// leaves takes errors.Join apart.
func leaves(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range many.Unwrap() {
			all = append(all, leaves(e)...)
		}
		return all
	}
	return []error{err}
}

// causes is errors.Join on one line.
type causes []error

func (j causes) Error() string {
	s := j[0].Error()
	for _, e := range j[1:] {
		s += ": " + e.Error()
	}
	return s
}

func (j causes) Unwrap() []error { return j }

// contextError is the error of a context that has ended, with its cause.
func contextError(ctx context.Context) error {
	return because(ctx.Err(), context.Cause(ctx), ctx.Err())
}

// bounded is a context that outlives its parent's end and has an end of its own. Like
// attempt it starts a timer only when somebody asks for Done.
type bounded struct {
	context.Context // the parent, for its values
	until           time.Time

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
}

func (b *bounded) Deadline() (time.Time, bool) { return b.until, true }

func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		b.ctx, b.cancel = context.WithDeadline(context.WithoutCancel(b.Context), b.until)
	}
	return b.ctx.Done()
}

func (b *bounded) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ctx != nil:
		return b.ctx.Err()
	case time.Now().Before(b.until):
		return nil
	default:
		return context.DeadlineExceeded
	}
}

func (b *bounded) Value(key any) any {
	b.mu.Lock()
	ctx := b.ctx
	b.mu.Unlock()
	if ctx != nil {
		return ctx.Value(key)
	}
	return context.WithoutCancel(b.Context).Value(key)
}

func (b *bounded) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}

// register lets Close end a; it reports false when Close has begun.
func (c *Client) register(a *attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.attempts[a] = struct{}{}
	return true
}

func (c *Client) unregister(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attempts, a)
}
