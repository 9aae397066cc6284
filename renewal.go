package locker

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/lockerproject/locker/driver"
)

const (
	// slack: a renewal that is due within TTL/slack goes with a batch that is sent
	// now.
	slack = 30
	// linger is how long the goroutine stays when nothing is scheduled, so that a
	// client that takes and releases one lock at a time does not start it each time.
	// It is also the longest time between two readings of the clock. Timers stand still
	// while the machine is suspended, so a loss is noticed within linger after the
	// machine has woken.
	linger = time.Second
	// renewRetryMost is the longest pause between two tries to renew a lease.
	renewRetryMost = 500 * time.Millisecond
	// renewParallel is how many renewals are sent at a time to a driver without
	// batches.
	renewParallel = 16
)

// plan puts a lease into the schedule where it belongs, and starts or wakes the
// goroutine if it would wake too late. With mu held.
func (b *leases) plan(l *lease) {
	l.due = l.validUntil
	if l.wantsRenewal() {
		l.due = l.renewAt
	}
	b.schedule.put(l)
	if !b.running {
		now := b.clock.recent()
		b.wakeAt = now.Add(linger)
		if l.due.Before(b.wakeAt) {
			b.wakeAt = l.due
		}
		first := b.wakeAt.Sub(now)
		b.running = b.tasks.run(func() { repeat(b.tasks.live, first, b.wake, b.step) })
		return
	}
	if l.due.Before(b.wakeAt) {
		signal(b.wake)
	}
}

// step does what is due, and returns how long to sleep; false: the schedule is
// empty.
func (b *leases) step() (pause time.Duration, more bool) {
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
		pause = b.wakeAt.Sub(now)
	}
	b.mu.Unlock()
	for _, batch := range todo.renew {
		b.tasks.run(func() { b.renew(batch) })
	}
	for _, handles := range todo.handles {
		endAll(handles, ErrLost)
	}
	for _, l := range todo.expired {
		b.queueLost(l, errExpired)
	}
	return pause, more
}

// work is what is due.
type work struct {
	renew   map[int][]*lease // by urgency; each batch is one request
	expired []*lease
	handles [][]*Lock // of expired
}

// collect takes from the schedule what is due. If that is a renewal, other renewals
// that are due soon go with it. With mu held.
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

// add puts a lease into a batch with leases that have about as much validity left.
// A request is bounded by its most urgent lease, so a short lease must not share
// one with long ones.
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
		renewals[i] = driver.Renewal{Hold: l.hold, TTL: b.storeTTL(max(l.length(asked), time.Millisecond))}
		// A request that hangs is given up in time for another one.
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

// renewAll sends the renewals, in one request if the driver can.
func (b *leases) renewAll(ctx context.Context, renewals []driver.Renewal) []error {
	d, ok := b.d.(driver.BatchRenewer)
	if !ok {
		errs := make([]error, len(renewals))
		inParallel(len(renewals), renewParallel, func(i int) {
			errs[i] = b.silent(ctx, b.d.Renew(ctx, renewals[i].Hold, renewals[i].TTL))
		})
		return errs
	}
	errs := d.RenewAll(ctx, renewals)
	if len(errs) == len(renewals) {
		for i, err := range errs {
			errs[i] = b.silent(ctx, err)
		}
		return errs
	}
	wrong := fmt.Errorf("the driver returned %d answers to %d renewals", len(errs), len(renewals))
	errs = make([]error, len(renewals))
	for i := range errs {
		errs[i] = wrong
	}
	return errs
}

// settle takes the answer to one renewal. A lease that has ended meanwhile is left
// alone.
func (b *leases) settle(l *lease, asked, now time.Time, length time.Duration, err error) {
	if errors.Is(err, driver.ErrLost) {
		b.lose(l, err)
		return
	}
	b.mu.Lock()
	l.renewing = false
	if l.state != held {
		b.mu.Unlock()
		return
	}
	kind := EventRenewed
	if err == nil {
		b.answered()
		length = min(length, l.length(asked)) // the store's may be longer, by its minimum
		if l.isLong() && length <= l.storeMost {
			l.fixedUntil = time.Time{} // the store's lease lasts until then
		}
		l.provisional = false
		l.extendValidity(asked, length, now)
	} else {
		kind = EventRenewFailed
		l.renewAt = now.Add(min(max(l.ttl/30, 5*time.Millisecond), renewRetryMost))
	}
	b.plan(l)
	l.queueEvent(l.context(), kind, now.Sub(asked), unanswered(err))
	b.mu.Unlock()
	l.deliverLater()
}

// extend renews a lease now, out of schedule, for at least ttl. A provisional lease is renewed
// for its whole length at least: the store shortens it to what it is asked for.
func (b *leases) extend(ctx context.Context, l *lease, ttl time.Duration) error {
	return b.extendBy(l, ttl, func(request func(context.Context) error) error { return b.ask(ctx, request) })
}

// extendBy is extend by ask, which makes the request and explains its error.
func (b *leases) extendBy(l *lease, ttl time.Duration, ask func(request func(context.Context) error) error) error {
	b.mu.Lock()
	if l.provisional {
		ttl = max(ttl, l.length(b.clock.now()))
	}
	b.mu.Unlock()
	gone := false // the store has answered ErrLost; ctx may have ended with the ErrLost of another lock
	err := ask(func(ctx context.Context) error {
		asked := b.clock.now()
		err := b.d.Renew(ctx, l.hold, b.storeTTL(ttl))
		if err == nil {
			b.extended(l, asked, ttl)
		}
		gone = errors.Is(err, driver.ErrLost)
		return err
	})
	if gone {
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

// extended sets the validity of a lease that extend has renewed.
func (b *leases) extended(l *lease, asked time.Time, ttl time.Duration) {
	now := b.clock.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.state == held {
		l.provisional = l.provisional && ttl < l.ttl
		if most := driver.BoundsOf(b.d, ttl).MaxTTL; most > 0 && ttl > most {
			l.storeMost = most
		}
		l.extendValidity(asked, ttl, now)
		b.plan(l)
	}
}
