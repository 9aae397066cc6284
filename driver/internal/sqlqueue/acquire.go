package sqlqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// Acquire implements driver.Driver.
func (e *Engine) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	w := e.book.add(r)     // until take has returned, Acquire asks for it
	defer e.book.remove(w) // unless its wait has ended; also after a panic in the user's code
	g, queued, err := e.take(ctx, r, w)
	if err == nil || errors.Is(err, driver.ErrNotAcquired) {
		StartSweeps(e)
	}
	switch {
	case err != nil:
		return g, err
	case !queued:
		if !e.opts.ListenToWait {
			e.listenFirst(ctx)
		}
		return g, nil
	}
	if r.Joined != nil {
		r.Joined()
	}
	e.listenSoon()
	select {
	case o := <-w.outcome:
		g, err := e.granted(ctx, r, o)
		return g, e.gone(r.ID, err, w.seen) // it was there then
	case <-ctx.Done():
		return driver.Grant{}, errors.Join(context.Cause(ctx), e.book.lastFault())
	case <-e.life.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

// take asks for a ticket until it is granted, refused, or queued.
func (e *Engine) take(ctx context.Context, r driver.Request, w *waiter) (g driver.Grant, queued bool, err error) {
	var asked time.Time // when the last request was made
	var sent time.Time  // until then it may arrive
	defer func() {      // also after a panic in the user's code
		if unreleased := e.book.asked(r.ID, sent); !unreleased {
			err = driver.NoTicket(err)
		}
		err = e.gone(r.ID, err, asked) // another may have arrived since
	}()
	for {
		answer, err := Repeat(ctx, e, Creates, func() (Answer, error) {
			asked = time.Now()
			a, err := e.store.Take(ctx, w.process, r, func() int64 {
				until, left := e.clock.deadline(ctx)
				if until != 0 { // else it takes no ticket
					sent = time.Now().Add(left + clockError)
				}
				return until
			})
			if err != nil && !a.Sent.IsZero() && e.store.Class(err)&Undone == 0 {
				e.book.unanswered(w, later(sent, time.Now()))
			}
			sent = time.Time{}
			return a, err
		})
		if err == nil {
			e.deliver(answer.Grants)
			g, queued, err = e.taken(ctx, w, answer)
		}
		if err != nil || queued || g.Token > 0 {
			return g, queued, err
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// taken reads the answer to a request for a ticket. If it returns neither a ticket nor an error, the request has to be
// sent again.
func (e *Engine) taken(ctx context.Context, w *waiter, a Answer) (g driver.Grant, queued bool, err error) {
	switch a.Result {
	case Granted:
		g = driver.Grant{Token: a.Token, Asked: a.Sent}
		e.book.hold(w, a.Token)
	case Refused:
		err = driver.ErrNotAcquired
	case Queued:
		queued = e.book.queued(w, a.Sent, a.Due)
		if !queued {
			err = e.lost(driver.ErrLost)
		}
		e.attend()
	case Late: // sent again while its context lasts
		e.clock.set(a.Now)
		err = context.Cause(ctx)
	case Unregistered:
		if err = e.register(ctx, w.process, a.Sent); err == nil {
			e.book.rejoin(w)
		}
	}
	return g, queued, err
}

// lost returns the error of a wait whose ticket is gone: Close removes tickets, too.
func (e *Engine) lost(err error) error {
	if e.life.Closed() {
		return driver.ErrClosed
	}
	return err
}

// granted returns the grant of a waiter with the given outcome.
//
// The first lease of a ticket that waited lasts for its TTL, but not beyond the life that the last heartbeat gave its
// process. So a crashed process does not block the queue for a TTL. The lease's end follows from the time of that
// heartbeat. If the core renews the lease, it gets this provisional lease. Otherwise, or if the ticket has a minimum
// hold or little of the lease is left, the driver renews the lease before it returns the grant, and repeats that while the
// database does not answer.
func (e *Engine) granted(ctx context.Context, r driver.Request, o outcome) (driver.Grant, error) {
	if o.err != nil {
		return driver.Grant{}, e.lost(o.err)
	}
	provisional := min(r.TTL, e.opts.Liveness)
	if r.Renewed && r.MinHold == 0 && time.Until(o.until) >= provisional/2 {
		g := driver.Grant{Token: o.token, Asked: o.until.Add(-provisional)}
		if now := time.Now(); g.Asked.After(now) { // a late request for the ticket has lengthened its lease
			g.Asked = now
		}
		if provisional < r.TTL {
			g.Claim = provisional
		}
		return g, nil
	}
	for pause := retry.Usual(); ; {
		asked := time.Now()
		err := e.Renew(ctx, r.Hold(o.token), r.TTL)
		switch {
		case err == nil:
			return driver.Grant{Token: o.token, Asked: asked}, nil
		case saysGone(err) || errors.Is(err, driver.ErrClosed):
			return driver.Grant{}, err
		case !retry.Sleep(ctx, pause.Next(), e.life.Done()):
			if end := context.Cause(ctx); end == nil {
				err = driver.ErrClosed
			} else if e.store.Class(err)&Undone == 0 {
				err = end // a request that the end of ctx has interrupted says nothing about the store
			}
			return driver.Grant{}, err
		}
	}
}

// saysGone reports whether an error says that there is no ticket.
func saysGone(err error) bool {
	return errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost)
}

// errAskedAgain ends a wait whose ticket somebody has asked for again.
var errAskedAgain = driver.Unavailable(errors.New("the ticket was asked for again meanwhile"))

// gone returns the error of an Acquire that has no ticket. If another request may have taken it after the time of what err is
// concluded from, the error does not say that there is none: the core would not release it.
func (e *Engine) gone(id string, err error, after time.Time) error {
	if _, r := e.book.known(id); saysGone(err) && r.pending(after) {
		return driver.Unavailable(errPending)
	}
	return err
}

// A clock estimates the database's clock. A request for a ticket contains the time until which its sender waits for
// the answer: the database refuses a request that the network, or a lock in the database, has delayed for longer.
// Exclusion does not depend on that. If the estimate is wrong, because the database's clock was set, the database
// answers with its time and the request is sent again.
type clock struct{ last atomic.Pointer[reading] }

// A reading is what the database's clock said, in microseconds, before the given time.
type reading struct {
	micros int64
	at     time.Time
}

const (
	// takeBound is how long a request for a ticket may be under way.
	takeBound = 2 * time.Second
	// readingAge bounds how far the two clocks drift apart, and clockError is more than that.
	readingAge = 10 * time.Minute
	clockError = 500 * time.Millisecond
)

func (c *clock) set(micros int64) { c.last.Store(&reading{micros, time.Now()}) }

// deadline returns when a request that is sent now is too late: in microseconds of the database's clock, and from now. It is
// 0 if the clock is not known. The estimate is behind the clock by the time that the answer with its reading took to
// arrive, so that a request is refused too early, rather than too late.
func (c *clock) deadline(ctx context.Context) (micros int64, left time.Duration) {
	r := c.last.Load()
	if r == nil || time.Since(r.at) > readingAge {
		return 0, 0
	}
	left = takeBound
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return r.micros + (time.Since(r.at) + left).Microseconds(), left
}
