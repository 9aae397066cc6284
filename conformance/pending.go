package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker"
)

// pending is an Acquire that has not returned.
type pending struct {
	e      *env
	name   string
	cancel context.CancelCauseFunc
	done   chan struct{}
	lock   *locker.Lock
	err    error
	at     time.Time // when it returned
}

// acquire starts an Acquire in the background.
func (e *env) acquire(l locker.Locker, name string, opts ...locker.Option) *pending {
	return e.acquireUnder(e.ctx, l, name, opts...)
}

func (e *env) acquireUnder(ctx context.Context, l locker.Locker, name string, opts ...locker.Option) *pending {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &pending{e: e, name: name, cancel: cancel, done: make(chan struct{})}
	e.onHeal(func() { cancel(nil) })
	e.group.Go(func() {
		defer close(p.done)
		p.lock, p.err = l.Acquire(ctx, name, opts...)
		p.at = time.Now()
	})
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
func (p *pending) waits(why string) {
	select {
	case <-p.done:
		p.e.failf("Acquire of %q returned (error %v) though %s", p.name, p.err, why)
	default:
	}
}

// returned reports whether Acquire has returned.
func (p *pending) returned() bool {
	select {
	case <-p.done:
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
func (p *pending) ended(b bound, after string) error {
	if !closedWithin(p.done, b.d) {
		queue := "?"
		if l, err := p.e.control().Inspect(p.e.within(slack), p.name); err == nil {
			queue = show(l.Tickets)
		}
		p.e.failf("Acquire of %q had not returned when %s, and %v had passed; queue %s", p.name, after, b, queue)
	}
	return p.err
}
