package sqlqueue

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver.
func (e *Engine) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if e.life.Closed() {
		return driver.Grant{}, driver.ErrClosed
	}
	w := e.book.add(r)
	defer e.book.remove(w) // unless its wait has ended; also after a panic in the user's code
	g, queued, err := e.take(ctx, r, w)
	err = e.gone(r.ID, err)
	if err == nil || errors.Is(err, driver.ErrNotAcquired) {
		StartSweeps(e)
	}
	switch {
	case err != nil:
		return g, err
	case !queued:
		e.book.hold(w)
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
		return g, e.gone(r.ID, err)
	case <-ctx.Done():
		return driver.Grant{}, errors.Join(context.Cause(ctx), e.book.lastFault())
	case <-e.life.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

// take asks for a ticket until it is granted, refused, or queued.
func (e *Engine) take(ctx context.Context, r driver.Request, w *waiter) (g driver.Grant, queued bool, err error) {
	arrives := e.book.ask(r.ID) // until then a request that was not answered may take the ticket
	var sent time.Time          // until then the last one that was sent may, unless it is answered
	defer func() { e.book.asked(r.ID, later(arrives, sent)) }()
	unanswered := false
	for {
		answer, err := Repeat(ctx, e, Creates, func() (Answer, error) {
			a, err := e.store.Take(ctx, w.process, r, func() int64 {
				until, left := e.clock.deadline(ctx)
				if until != 0 { // else it takes no ticket
					sent = time.Now().Add(left + clockError)
				}
				return until
			})
			if err == nil || a.Sent.IsZero() || e.store.Class(err)&Undone != 0 {
				sent = time.Time{}
			} else {
				unanswered, arrives = true, later(arrives, sent)
			}
			return a, err
		})
		if err == nil {
			e.deliver(answer.Grants)
			g, queued, err = e.taken(ctx, w, answer)
		}
		switch {
		case queued, g.Token > 0:
			return g, queued, nil
		case errors.Is(err, driver.ErrNotAcquired), errors.Is(err, driver.ErrLost):
			return g, false, err
		case err != nil && unanswered:
			return g, false, err
		case err != nil:
			return g, false, driver.NoTicket(err)
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
	case Refused:
		err = driver.ErrNotAcquired
	case Queued:
		queued = e.book.queued(w, a.Due)
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
// hold or little of the lease is left, the driver renews the lease before it returns the grant.
func (e *Engine) granted(ctx context.Context, r driver.Request, o outcome) (driver.Grant, error) {
	if o.err != nil {
		return driver.Grant{}, e.lost(o.err)
	}
	provisional := min(r.TTL, e.opts.Liveness)
	if r.Renewed && r.MinHold == 0 && time.Until(o.until) >= provisional/2 {
		g := driver.Grant{Token: o.token, Asked: o.until.Add(-provisional)}
		if provisional < r.TTL {
			g.Claim = provisional
		}
		return g, nil
	}
	asked := time.Now()
	if err := e.Renew(ctx, r.Hold(o.token), r.TTL); err != nil {
		e.book.forget(r.ID)
		return driver.Grant{}, err
	}
	return driver.Grant{Token: o.token, Asked: asked}, nil
}

// errArriving says that a ticket that is not there may come to be, by a request that was made before.
var errArriving = errors.New("a request for the ticket is under way, or was not answered and may still arrive")

// gone returns the error of an Acquire. ErrNotAcquired and ErrLost say that there is no ticket: the core releases none.
// While an unanswered request for it may still arrive, there is another error in their place.
func (e *Engine) gone(id string, err error) error {
	if (errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost)) && e.book.mayArrive(id) {
		return notYet(err)
	}
	return err
}

// notYet returns the error in place of an answer that the next request to arrive may prove wrong; err is that answer, or
// why there is none.
func notYet(err error) error {
	if err != nil && !errors.Is(err, driver.ErrNotAcquired) && !errors.Is(err, driver.ErrLost) {
		return err
	}
	return driver.Unavailable(errArriving)
}

// ask records that Acquire asks for a ticket. It returns until when a request of an earlier Acquire may take it.
func (b *book) ask(id string) (arrives time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := b.arriving[id]; !until.Equal(forever) {
		arrives = until
	}
	b.arriving[id] = forever
	return arrives
}

// asked records that Acquire asks for a ticket no longer, and until when a request for it may still arrive. Those that
// cannot arrive any more are forgotten whenever there are twice as many as the last time.
func (b *book) asked(id string, arrives time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if until := b.arriving[id]; !until.Equal(forever) { // another Acquire has asked for it meanwhile
		arrives = later(arrives, until)
	}
	if b.arriving[id] = arrives; !arrives.After(now) {
		delete(b.arriving, id)
	}
	if len(b.arriving) > b.tidyAt {
		maps.DeleteFunc(b.arriving, func(_ string, until time.Time) bool { return until.Before(now) })
		b.tidyAt = 2 * len(b.arriving)
	}
}

// mayArrive reports whether a ticket that is not there may come to be.
func (b *book) mayArrive(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.arriving[id])
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
