package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// background is a call of Acquire, of a Locker or a driver, that may not have returned.
type background struct {
	e      *env
	name   string
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has returned
	joined atomic.Int64  // how often it was said to wait: by Joined, or to the observer
	moved  atomic.Int64  // how often it has queued again
	err    error         // what it has returned
	at     time.Time     // when it returned
}

// backgroundKey is the key of the *background in the context of its acquire.
type backgroundKey struct{}

// observeWaiting is an observer of all clients of a case.
func observeWaiting(ctx context.Context, ev locker.Event) {
	b, ok := ctx.Value(backgroundKey{}).(*background)
	switch {
	case ok && ev.Kind == locker.EventWaiting:
		b.joined.Add(1)
	case ok && ev.Kind == locker.EventRejoined:
		b.moved.Add(1)
	}
}

// inBackground starts acquire, and calls granted if it was. The time of granted is not measured.
func (e *env) inBackground(ctx context.Context, name string, acquire func(context.Context, *background) error, granted func(context.Context)) *background {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &background{e: e, name: name, cancel: cancel, done: make(chan struct{})}
	ctx = context.WithValue(ctx, backgroundKey{}, b)
	e.onHeal(func() { cancel(nil) })
	e.group.Go(func() {
		defer close(b.done)
		b.err = acquire(ctx, b)
		b.at = time.Now()
		if b.err == nil {
			granted(ctx)
		}
	})
	return b
}

// pending is an Acquire of a Locker in the background.
type pending struct {
	*background

	lock  *locker.Lock // what it has returned
	moves bool         // it may queue again
}

// acquire starts an Acquire in the background.
func (e *env) acquire(l locker.Locker, name string, opts ...locker.Option) *pending {
	return e.acquireUnder(e.ctx, l, name, opts...)
}

func (e *env) acquireUnder(ctx context.Context, l locker.Locker, name string, opts ...locker.Option) *pending {
	p := &pending{}
	p.background = e.inBackground(ctx, name, func(ctx context.Context, _ *background) (err error) {
		p.lock, err = l.Acquire(ctx, name, opts...)
		return err
	}, func(context.Context) {})
	return p
}

// queue starts an Acquire and waits until its ticket is the n-th of the queue and
// the driver has called Joined: before that an outage ends the Acquire (D7).
func (e *env) queue(l locker.Locker, name string, n int, opts ...locker.Option) *pending {
	p := e.acquire(l, name, opts...)
	e.eventually(patient, "waiting for a ticket in the queue of "+name, func() error {
		err := p.queued(n)
		switch {
		case err == nil || !p.returned():
			return err
		case p.err != nil:
			return fmt.Errorf("Acquire, which had to wait, returned: %w; %w", p.err, err)
		}
		return fmt.Errorf("Acquire was granted although it had to wait; %w", err)
	})
	return p
}

// queueBehind is queue behind one lease that ends by itself. If the machine is loaded
// the lease may end before the ticket has been seen in the queue.
func (e *env) queueBehind(l locker.Locker, name string) *pending {
	p := e.acquire(l, name)
	e.eventually(patient, "waiting for a ticket in the queue of "+name, func() error {
		if p.returned() {
			return nil
		}
		return p.queued(2)
	})
	return p
}

// queued reports why the ticket is not known to wait as the n-th of the queue.
func (p *pending) queued(n int) error {
	queue := p.e.queueOf(p.name)
	if len(queue) == n && !queue[n-1].Held && p.joined.Load() > 0 {
		return nil
	}
	return fmt.Errorf("want %d tickets, the last of them waiting and its observer notified: %s", n, show(queue))
}

// awaitJoined waits until the ticket is said to wait.
func (b *background) awaitJoined(within bound) {
	b.e.eventually(within, "waiting for Joined", func() error {
		if b.joined.Load() == 0 {
			return errors.New("the driver has not called Joined")
		}
		return nil
	})
}

// waits fails if Acquire has returned.
func (b *background) waits(why string) {
	if b.returned() {
		b.e.failf("Acquire of %q returned (error %v) though %s", b.name, b.err, why)
	}
}

// notBefore fails if Acquire returned before the end of what blocked it.
func (b *background) notBefore(end time.Time, what string, args ...any) {
	if early := end.Sub(b.at); early > 0 {
		b.e.failf("%s ended %v early: Acquire of %q has returned", fmt.Sprintf(what, args...), early, b.name)
	}
}

// returned reports whether Acquire has returned.
func (b *background) returned() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// granted waits for the grant, at most as long as the bound. A core whose ticket is gone queues again,
// so that a driver which forgets waiters would only seem slow: no case takes that for granted.
func (p *pending) granted(b bound, after string) *locker.Lock {
	_ = p.ended(b, after)
	p.e.ok(p.err, "acquire %q, %s", p.name, after)
	if n := p.moved.Load(); n > 0 && !p.moves {
		p.e.failf("a waiter for %q was granted, %s, but its ticket was lost before, and it has queued again %d times", p.name, after, n)
	}
	return p.lock
}

// closedWithin reports whether done is closed within d. If this process stood still when
// that was over, done gets a moment more.
func closedWithin(done <-chan struct{}, d time.Duration) bool {
	end := time.Now().Add(d)
	closes := func(d time.Duration) bool { return !retry.Sleep(context.Background(), d, done) }
	return closes(d) || time.Since(end) > moment/10 && closes(moment)
}

// ended waits until Acquire returns, at most as long as the bound.
func (b *background) ended(within bound, after string) error {
	if !closedWithin(b.done, within.d) {
		queue := "?"
		if q, err := b.e.control().Inspect(b.e.within(slack), b.name); err == nil {
			queue = show(q.Tickets)
		}
		b.e.failf("Acquire of %q had not returned when %s, and %v had passed; queue %s", b.name, after, within, queue)
	}
	return b.err
}
