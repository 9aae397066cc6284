package locker

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

const (
	// slack: renewals that are due within this part of their TTL go along with a
	// batch.
	slack = 30
	// linger is how long the goroutine stays without anything in the schedule. A
	// client that takes and releases one lock at a time would start it each
	// time. It is also how long the goroutine sleeps at the most: timers stand
	// still while the machine is suspended, and so it knows of a lost lease soon
	// after the machine has woken.
	linger = time.Second
)

// watch is the goroutine of the schedule: it does what is due, sleeps until
// something is, first for the given time, and ends when the schedule is empty.
func (b *leases) watch(first time.Duration) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-b.wake:
		case <-b.tasks.live.Done():
			return
		}
		next, more := b.step()
		if !more {
			return
		}
		timer.Reset(next)
	}
}

// step does what is due now and returns how long to sleep; false: no more.
func (b *leases) step() (next time.Duration, more bool) {
	now := b.clock.now()
	b.mu.Lock()
	todo := b.collect(now)
	if len(b.schedule) == 0 {
		b.running = false
	} else {
		b.wakeAt, more = b.schedule[0].due, true
		if latest := now.Add(linger); b.wakeAt.After(latest) {
			b.wakeAt = latest
		}
		next = b.wakeAt.Sub(now)
	}
	b.mu.Unlock()
	for _, batch := range todo.renew {
		b.tasks.run(func() { b.renew(batch) })
	}
	for i, l := range todo.expired {
		b.tellLost(l, todo.handles[i], errExpired)
	}
	return next, more
}

// work is what is due.
type work struct {
	renew   map[int][]*lease // by urgency: each batch is one request
	expired []*lease
	handles [][]*Lock // of expired
}

// collect takes from the schedule what is due, and with a renewal those that
// are due soon: they share a request. With mu held.
func (b *leases) collect(now time.Time) (todo work) {
	for len(b.schedule) > 0 {
		l := b.schedule[0]
		isDue := !l.due.After(now)
		switch {
		case !now.Before(l.validUntil):
			todo.expired = append(todo.expired, l)
			todo.handles = append(todo.handles, b.detachExpired(l))
		case l.wantsRenewal() && (isDue || len(todo.renew) > 0 && l.renewAt.Sub(now) <= l.ttl/slack):
			l.renewing = true
			todo.add(l, now)
			b.plan(l)
		default:
			return todo
		}
	}
	return todo
}

// add puts a lease into a batch with those that have about as much time left: a
// request is given up in time for its most urgent lease, so a short lease must
// not share one with long ones.
func (w *work) add(l *lease, now time.Time) {
	if w.renew == nil {
		w.renew = make(map[int][]*lease)
	}
	urgency := bits.Len64(uint64(l.validUntil.Sub(now)))
	w.renew[urgency] = append(w.renew[urgency], l)
}

// renew renews a batch, and settles each lease by its own answer.
func (b *leases) renew(batch []*lease) {
	asked := b.clock.now()
	renewals := make([]driver.Renewal, len(batch))
	b.mu.Lock()
	bound := b.answerTimeout
	for i, l := range batch {
		renewals[i] = driver.Renewal{Hold: l.hold, TTL: b.storeTTL(l.length())}
		// An attempt that hangs is given up in time for another one.
		left := l.validUntil.Sub(asked)
		bound = min(bound, left, max(left/3, 50*time.Millisecond))
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(b.tasks.live, bound, noAnswer(bound))
	defer cancel()
	errs := b.renewAll(ctx, renewals)
	now := b.clock.now()
	for i, l := range batch {
		b.settle(l, asked, now, renewals[i].TTL, errs[i])
	}
}

// renewAll asks the store, in one batch where the driver can.
func (b *leases) renewAll(ctx context.Context, renewals []driver.Renewal) []error {
	if d, ok := b.d.(driver.BatchRenewer); ok {
		errs := d.RenewAll(ctx, renewals)
		if len(errs) == len(renewals) {
			return errs
		}
		wrong := fmt.Errorf("the driver gave %d answers to %d renewals", len(errs), len(renewals))
		errs = make([]error, len(renewals))
		for i := range errs {
			errs[i] = wrong
		}
		return errs
	}
	const atOnce = 16
	errs := make([]error, len(renewals))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, r := range renewals {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			errs[i] = b.d.Renew(ctx, r.Hold, r.TTL)
		})
	}
	group.Wait()
	return errs
}

// settle takes the answer to one renewal. A lease that was released or lost
// meanwhile is left alone.
func (b *leases) settle(l *lease, asked, now time.Time, length time.Duration, err error) {
	if errors.Is(err, driver.ErrLost) {
		b.lose(l, err)
		return
	}
	l.observed.lock() // nothing is told of a renewal after the end
	defer l.observed.unlock()
	b.mu.Lock()
	l.renewing = false
	if l.state != held {
		b.mu.Unlock()
		return
	}
	kind := EventRenewed
	if err == nil {
		length = min(length, l.length()) // the store's may be longer, by its minimum
		if l.renewers == 0 && !l.fixedUntil.IsZero() {
			length = min(length, l.fixedUntil.Sub(asked))
		}
		l.claimed = false
		l.renewedAt(asked, length, now)
	} else {
		kind = EventRenewFailed
		l.renewAt = now.Add(min(max(l.ttl/30, 5*time.Millisecond), renewRetryMost))
	}
	b.plan(l)
	b.mu.Unlock()
	if l.observed != nil {
		b.tell(l.context(), l.event(kind, now.Sub(asked), unanswered(err)))
	}
}

// renewRetryMost is the longest pause between two tries to renew.
const renewRetryMost = 500 * time.Millisecond

// extend renews a lease now, out of schedule, for at least ttl.
func (b *leases) extend(ctx context.Context, l *lease, ttl time.Duration) error {
	err := b.ask(ctx, func(ctx context.Context) error {
		asked := b.clock.now()
		err := b.d.Renew(ctx, l.hold, b.storeTTL(ttl))
		if err == nil {
			b.extended(l, asked, ttl)
		}
		return err
	})
	if errors.Is(err, driver.ErrLost) {
		b.lose(l, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch l.state {
	case lost:
		return ErrLost
	case released:
		return ErrReleased
	default:
		return err
	}
}

// extended counts a lease that extend has lengthened.
func (b *leases) extended(l *lease, asked time.Time, ttl time.Duration) {
	now := b.clock.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.state == held {
		l.claimed = l.claimed && ttl < l.ttl
		if most := driver.BoundsOf(b.d, ttl).MaxTTL; most > 0 && ttl > most {
			l.storeCap = most
		}
		l.renewedAt(asked, ttl, now)
		b.plan(l)
	}
}
