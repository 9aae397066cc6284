package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker"
)

// background is a call of Acquire, of a Locker or a driver, that may not have returned.
type background struct {
	e      *env
	name   string
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has returned
	err    error         // what it has returned
	at     time.Time     // when it returned
}

// inBackground starts acquire, and calls granted if it was. The time of granted is not measured.
func (e *env) inBackground(ctx context.Context, name string, acquire func(context.Context) error, granted func(context.Context)) *background {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &background{e: e, name: name, cancel: cancel, done: make(chan struct{})}
	e.onHeal(func() { cancel(nil) })
	e.group.Go(func() {
		defer close(b.done)
		b.err = acquire(ctx)
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

	lock *locker.Lock // what it has returned
}

// acquire starts an Acquire in the background.
func (e *env) acquire(l locker.Locker, name string, opts ...locker.Option) *pending {
	return e.acquireUnder(e.ctx, l, name, opts...)
}

func (e *env) acquireUnder(ctx context.Context, l locker.Locker, name string, opts ...locker.Option) *pending {
	p := &pending{}
	p.background = e.inBackground(ctx, name, func(ctx context.Context) (err error) {
		p.lock, err = l.Acquire(ctx, name, opts...)
		return err
	}, func(context.Context) {})
	return p
}

// queue starts an Acquire and waits until its ticket is the n-th of the queue and
// the driver has called Joined: before that an outage ends the Acquire (D7).
func (e *env) queue(l locker.Locker, name string, n int, opts ...locker.Option) *pending {
	before, _ := e.waitsOf(l, name)
	p := e.acquire(l, name, opts...)
	e.eventually(patient, "waiting for a ticket in the queue of "+name, func() error {
		err := e.queued(l, name, n, before)
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
	before, _ := e.waitsOf(l, name)
	p := e.acquire(l, name)
	e.eventually(patient, "waiting for a ticket in the queue of "+name, func() error {
		if p.returned() {
			return nil
		}
		return e.queued(l, name, 2, before)
	})
	return p
}

// queued reports why a ticket of l is not known to wait as the n-th of the queue.
func (e *env) queued(l locker.Locker, name string, n, before int) error {
	queue := e.queueOf(name)
	times, observed := e.waitsOf(l, name)
	if len(queue) == n && !queue[n-1].Held && (times > before || !observed) {
		return nil
	}
	return fmt.Errorf("want %d tickets, the last of them waiting and its observer notified: %s", n, show(queue))
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

// granted waits for the grant, at most as long as the bound.
func (p *pending) granted(b bound, after string) *locker.Lock {
	_ = p.ended(b, after)
	p.e.ok(p.err, "acquire %q, %s", p.name, after)
	return p.lock
}

// closedWithin reports whether done is closed within d. If this process stood still when
// that was over, done gets a moment more.
func closedWithin(done <-chan struct{}, d time.Duration) bool {
	end := time.Now().Add(d)
	if closes(done, d) {
		return true
	}
	return time.Since(end) > moment/10 && closes(done, moment)
}

func closes(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
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
