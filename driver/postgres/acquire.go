package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.ctx.Err() != nil {
		return driver.Grant{}, driver.ErrClosed
	}
	w := d.waiters.add(r)
	g, queued, err := d.take(ctx, r, w)
	if err == nil || errors.Is(err, driver.ErrNotAcquired) {
		d.start(&d.waiters.sweeping, d.sweepOnAndOff)
	}
	if !queued {
		d.waiters.remove(w, err == nil)
		if err == nil {
			d.listenSoon()
		}
		return g, err
	}
	if r.Joined != nil {
		r.Joined()
	}
	d.listenSoon()
	select {
	case o := <-w.outcome:
		g, err := d.granted(ctx, r, o)
		return g, w.gone(err)
	case <-ctx.Done():
		d.waiters.remove(w, false)
		return driver.Grant{}, errors.Join(context.Cause(ctx), d.waiters.lastFault())
	case <-d.ctx.Done():
		d.waiters.remove(w, false)
		return driver.Grant{}, driver.ErrClosed
	}
}

// errArriving says that a ticket that is not there may come to be, by a request that was sent before.
var errArriving = errors.New("a request for the ticket was not answered and may still arrive")

// gone returns the error of an Acquire. ErrNotAcquired and ErrLost say that there is no ticket: the core releases none.
// While an unanswered request for it may still arrive, there is another error in their place.
func (w *waiter) gone(err error) error {
	if (errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost)) && time.Now().Before(w.arriving) {
		return driver.Unavailable(fmt.Errorf("%w (%v)", errArriving, err)) //nolint:errorlint // it is not the answer
	}
	return err
}

// take asks for a ticket until it is granted, refused, or queued.
func (d *Driver) take(ctx context.Context, r driver.Request, w *waiter) (g driver.Grant, queued bool, err error) {
	for {
		var sent time.Time
		answer, err := repeat(ctx, d, true, func() (string, error) {
			sent = time.Time{}
			answer, err := d.call(ctx, &sent, d.w.acquire, []byte(r.Name), r.ID, w.process, r.Shared, permits(r),
				sqlqueue.Micros(r.TTL), r.Wait, []byte(r.Owner), []byte(r.Note), d.clock.deadline(ctx))
			if err != nil && !sent.IsZero() && !refused(err) {
				w.arriving = sent.Add(arriveBound)
			}
			return answer, err
		})
		if err == nil {
			g, queued, err = d.taken(ctx, w, answer, sent)
		}
		switch {
		case queued, g.Token > 0, errors.Is(err, driver.ErrNotAcquired), errors.Is(err, driver.ErrLost), errors.Is(err, errReply):
			return g, queued, w.gone(err)
		case err != nil && !w.arriving.IsZero():
			return g, false, err
		case err != nil:
			return g, false, driver.NoTicket(err)
		}
	}
}

// taken reads the answer to a request for a ticket. If it returns neither a ticket nor an error, the request has to be
// sent again.
func (d *Driver) taken(ctx context.Context, w *waiter, answer string, sent time.Time) (g driver.Grant, queued bool, err error) {
	var due, now int64
	switch {
	case scan(answer, "g %d", &g.Token):
		g.Asked = sent
	case answer == "n":
		err = driver.ErrNotAcquired
	case scan(answer, "w %d", &due):
		queued = d.waiters.queued(w, time.Duration(due)*time.Microsecond)
		if !queued {
			err = d.lost(driver.ErrLost)
		}
		d.attend()
	case scan(answer, "t %d", &now): // sent again while its context lasts
		d.clock.set(now, sent)
		err = context.Cause(ctx)
	case answer == "p":
		if err = d.register(ctx, w.process, sent); err == nil {
			d.waiters.rejoin(w)
		}
	default:
		err = errReply
	}
	return g, queued, err
}

// lost returns the error of a wait whose ticket is gone: Close removes tickets, too.
func (d *Driver) lost(err error) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	return err
}

// granted returns the grant of a waiter with the given outcome.
//
// The first lease of a ticket that waited lasts for its TTL, but not beyond the life that the last heartbeat gave its
// process. So a crashed process does not block the queue for a TTL. The lease's end follows from the time of that
// heartbeat. If the core renews the lease, it gets this provisional lease. Otherwise, or if the ticket has a minimum
// hold or little of the lease is left, the driver renews the lease before it returns the grant.
func (d *Driver) granted(ctx context.Context, r driver.Request, o outcome) (driver.Grant, error) {
	if o.err != nil {
		return driver.Grant{}, d.lost(o.err)
	}
	provisional := min(r.TTL, d.opts.liveness)
	if r.Renewed && r.MinHold == 0 && time.Until(o.until) >= provisional/2 {
		g := driver.Grant{Token: o.token, Asked: o.until.Add(-provisional)}
		if provisional < r.TTL {
			g.Claim = provisional
		}
		return g, nil
	}
	asked := time.Now()
	if err := d.Renew(ctx, r.Hold(o.token), r.TTL); err != nil {
		d.waiters.forget(r.ID)
		return driver.Grant{}, err
	}
	return driver.Grant{Token: o.token, Asked: asked}, nil
}

// A clock estimates the database's clock. A request for a ticket contains the time until which its sender waits for
// the answer: the database refuses a request that the network, or a lock in the database, has delayed for longer.
// Exclusion does not depend on that. If the estimate is wrong, because the database's clock was set, the database
// answers with its time and the request is sent again.
type clock struct{ last atomic.Pointer[reading] }

// A reading is what the database's clock said in the answer to a request that was sent at the given time.
type reading struct {
	micros int64
	sent   time.Time
}

const (
	// takeBound is how long a request for a ticket may be under way. After an unanswered request, the core tries for
	// longer than that to remove its ticket.
	takeBound = 10 * time.Second
	// arriveBound is after which time it certainly takes none: the estimate of the clock is late by the time that the
	// answer with its reading took.
	arriveBound = 2 * takeBound
	// readingAge bounds how far the two clocks drift apart.
	readingAge = 10 * time.Minute
)

func (c *clock) set(micros int64, sent time.Time) { c.last.Store(&reading{micros, sent}) }

// deadline returns when a request that is sent now is too late, in microseconds of the database's clock; 0 if the clock
// is not known.
func (c *clock) deadline(ctx context.Context) int64 {
	r := c.last.Load()
	if r == nil || time.Since(r.sent) > readingAge {
		return 0
	}
	left := takeBound
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return r.micros + (time.Since(r.sent) + left).Microseconds()
}
