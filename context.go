package locker

import (
	"context"
	"sync"
	"time"
)

// Deadline implements context.Context.
func (a *acquisition) Deadline() (time.Time, bool) { return a.parent.Deadline() }

// Done implements context.Context.
func (a *acquisition) Done() <-chan struct{} { return a.start().Done() }

// Err implements context.Context.
func (a *acquisition) Err() error {
	if ctx := a.started(); ctx != nil {
		return ctx.Err()
	}
	return a.parent.Err()
}

// Value implements context.Context.
func (a *acquisition) Value(key any) any {
	if ctx := a.started(); ctx != nil {
		return ctx.Value(key) // lets context find the cause, and children attach without a goroutine
	}
	return a.parent.Value(key)
}

func (a *acquisition) started() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// start makes the context behind a, on the first call.
func (a *acquisition) start() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx != nil {
		return a.ctx
	}
	a.ctx, a.cancel = context.WithCancelCause(a.parent)
	if a.ended {
		a.cancel(nil)
		return a.ctx
	}
	a.stop = context.AfterFunc(a.c.tasks.live, func() { a.cancel(ErrClosed) })
	if !a.queued && !a.parked {
		a.bound()
	}
	if a.r.limited && a.r.wait > 0 {
		a.limit = time.AfterFunc(time.Until(a.begun.Add(a.r.wait)), func() { a.cancel(errWaitOver) })
	}
	return a.ctx
}

// bound gives the store until answerTimeout after asked to say that the ticket
// is granted or queued. With mu held and the context started.
func (a *acquisition) bound() {
	timeout := a.c.answerTimeout
	a.answer = time.AfterFunc(time.Until(a.asked.Add(timeout)), func() { a.cancel(noAnswer(timeout)) })
}

// park takes back the bound while a waits for another goroutine's acquisition,
// which has one of its own.
func (a *acquisition) park() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked = true
	a.unbound()
}

// unpark is called before a asks the store itself.
func (a *acquisition) unpark() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked, a.queued, a.asked = false, false, time.Now()
	if a.ctx != nil && a.answer == nil {
		a.bound()
	}
}

// close frees what a has started.
func (a *acquisition) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.ctx == nil {
		return
	}
	a.stop()
	a.unbound()
	if a.limit != nil {
		a.limit.Stop()
	}
	a.cancel(nil)
}

// bounded is a context that outlives its parent's end and has an end of its own. Like
// acquisition it starts a timer only when somebody asks for Done.
type bounded struct {
	context.Context // the parent, for its values
	until           time.Time

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) { return b.until, true }

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		b.ctx, b.cancel = context.WithDeadline(context.WithoutCancel(b.Context), b.until)
	}
	return b.ctx.Done()
}

// Err implements context.Context.
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

// Value implements context.Context.
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
