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
	// maxSleep is the longest time between two readings of the clock. Timers stand still
	// while the machine is suspended, so a loss is noticed within maxSleep of its waking.
	// The goroutine also sleeps once more when nothing is scheduled any more, so that a
	// client that takes and releases one lock at a time does not start it each time.
	maxSleep = time.Second
	// renewRetryMost is the longest pause between two tries to renew a lease.
	renewRetryMost = 500 * time.Millisecond
	// renewParallel is how many renewals are sent at a time to a driver without
	// batches.
	renewParallel = 16
)

// plan puts a lease into the schedule where it belongs, and starts or wakes the
// goroutine if it would wake too late. With mu held.
func (ls *leases) plan(l *lease) {
	l.due = l.validUntil
	if l.wantsRenewal() {
		l.due = l.renewAt
	}
	ls.schedule.put(l)
	if !ls.running {
		now := ls.clock.recent()
		ls.wakeAt = now.Add(maxSleep)
		if l.due.Before(ls.wakeAt) {
			ls.wakeAt = l.due
		}
		first := ls.wakeAt.Sub(now)
		ls.running = ls.tasks.run(func() { repeat(ls.tasks.live, first, ls.wake, ls.step) })
		return
	}
	if l.due.Before(ls.wakeAt) {
		signal(ls.wake)
	}
}

// step does what is due, and returns how long to sleep; false: the schedule is
// empty.
func (ls *leases) step() (pause time.Duration, more bool) {
	now := ls.clock.now()
	ls.mu.Lock()
	batches := ls.collect(now)
	if len(ls.schedule) == 0 {
		ls.running = false
	} else {
		ls.wakeAt, more = ls.schedule[0].due, true
		if latest := now.Add(maxSleep); ls.wakeAt.After(latest) {
			ls.wakeAt = latest
		}
		pause = ls.wakeAt.Sub(now)
	}
	ls.mu.Unlock()
	for _, batch := range batches {
		ls.tasks.run(func() { ls.renew(batch) })
	}
	return pause, more
}

// collect ends the leases whose validity is over, and returns those that are to be renewed
// now, in batches, each for one request. Renewals that are due soon go with others that are
// due now.
//
// A request is bounded by its most urgent lease, so a short lease must not share one with
// long ones: a batch has leases that have about as much validity left. With mu held.
func (ls *leases) collect(now time.Time) (batches map[int][]*lease) {
	batches = make(map[int][]*lease)
	for len(ls.schedule) > 0 {
		l := ls.schedule[0]
		isDue := !l.due.After(now)
		switch {
		case !now.Before(l.validUntil):
			ls.detachExpired(l)
		case l.wantsRenewal() && (isDue || len(batches) > 0 && l.renewAt.Sub(now) <= l.ttl/slack):
			l.renewing = true
			urgency := bits.Len64(uint64(l.validUntil.Sub(now)))
			batches[urgency] = append(batches[urgency], l)
			ls.plan(l)
		default:
			return batches
		}
	}
	return batches
}

// renew renews a batch, and settles each lease by its own answer.
func (ls *leases) renew(batch []*lease) {
	asked := ls.clock.now()
	renewals := make([]driver.Renewal, len(batch))
	ls.mu.Lock()
	bound := ls.answerTimeout
	for i, l := range batch {
		renewals[i] = driver.Renewal{Hold: l.hold, TTL: ls.storeTTL(max(l.length(asked), time.Millisecond))}
		// A request that hangs is given up in time for another one.
		left := l.validUntil.Sub(asked)
		bound = min(bound, left, max(left/3, 50*time.Millisecond))
	}
	ls.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ls.tasks.live, bound, noAnswer(bound))
	defer cancel()
	errs := ls.renewAll(ctx, renewals)
	now := ls.clock.now()
	for i, l := range batch {
		ls.settle(l, asked, now, renewals[i].TTL, errs[i])
	}
}

// renewAll sends the renewals, in one request if the driver can.
func (ls *leases) renewAll(ctx context.Context, renewals []driver.Renewal) []error {
	d, ok := ls.d.(driver.BatchRenewer)
	if !ok {
		errs := make([]error, len(renewals))
		inParallel(len(renewals), renewParallel, func(i int) {
			errs[i] = ls.silent(ctx, ls.d.Renew(ctx, renewals[i].Hold, renewals[i].TTL))
		})
		return errs
	}
	errs := d.RenewAll(ctx, renewals)
	if len(errs) == len(renewals) {
		for i, err := range errs {
			errs[i] = ls.silent(ctx, err)
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
func (ls *leases) settle(l *lease, asked, now time.Time, length time.Duration, err error) {
	if errors.Is(err, driver.ErrLost) {
		ls.lose(l, err)
		return
	}
	ls.mu.Lock()
	l.renewing = false
	if l.state != held {
		ls.mu.Unlock()
		return
	}
	kind := EventRenewed
	if err == nil {
		ls.answered()
		length = min(length, l.length(asked)) // the store's may be longer, by its minimum
		if l.isLong() && length <= l.maxLease && !l.fixedEnd.After(asked.Add(length)) {
			l.fixedEnd = time.Time{} // the store's lease lasts until then
		}
		l.provisional = false
		l.extendValidity(asked, length, now)
	} else {
		kind = EventRenewFailed
		l.renewAt = now.Add(min(max(l.ttl/30, 5*time.Millisecond), renewRetryMost))
	}
	ls.plan(l)
	l.queueEvent(l.context(), kind, now.Sub(asked), unanswered(err))
	ls.mu.Unlock()
	l.deliverLater()
}

// extend renews a lease now, out of schedule, for at least ttl. A provisional lease is renewed
// for its whole length at least: the store shortens it to what it is asked for. ask makes the
// request and explains its error.
func (ls *leases) extend(l *lease, ttl time.Duration, ask func(request func(context.Context) error) error) error {
	ls.mu.Lock()
	if l.provisional {
		ttl = max(ttl, l.length(ls.clock.now()))
	}
	ls.mu.Unlock()
	gone := false // the store has answered ErrLost; ctx may have ended with the ErrLost of another lock
	err := ask(func(ctx context.Context) error {
		asked := ls.clock.now()
		err := ls.d.Renew(ctx, l.hold, ls.storeTTL(ttl))
		if err == nil {
			ls.extended(l, asked, ttl)
		}
		gone = errors.Is(err, driver.ErrLost)
		return err
	})
	if gone {
		<-ls.lose(l, err)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
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
func (ls *leases) extended(l *lease, asked time.Time, ttl time.Duration) {
	now := ls.clock.now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.state == held {
		l.provisional = l.provisional && ttl < l.ttl
		l.extendValidity(asked, ttl, now)
		ls.plan(l)
	}
}
