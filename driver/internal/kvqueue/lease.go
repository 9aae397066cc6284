package kvqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// errNotOurs is the error of renewOther for a ticket that is in the store.
var errNotOurs = fmt.Errorf("%w: renewal of a ticket that is being released, or belongs to another process", driver.ErrUnsupported)

// Renew implements driver.Driver.
func (e *Engine) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return e.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// renewal is one entry of a batch.
type renewal struct {
	*ticket
	ttl time.Duration
	err *error
}

// RenewAll implements driver.BatchRenewer: for each session, however many tickets are
// on it, one request that keeps it alive and one, or a few, that find out which tickets
// are still there.
func (e *Engine) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	bySession := make(map[*session][]renewal)
	var others []int
	ctx, done := e.bind(ctx)
	defer done()
	shortest := time.Duration(0)
	e.mu.Lock()
	for i, r := range rs {
		switch t := e.find(r.Hold); {
		case e.closed:
			errs[i] = driver.ErrClosed
		case t == nil || t.state == leaving || t.state == orphan:
			others = append(others, i)
		case t.state != held || !t.until.IsZero() && time.Now().After(t.until):
			errs[i] = driver.ErrLost
		default:
			bySession[t.session] = append(bySession[t.session], renewal{t, r.TTL, &errs[i]})
			if shortest == 0 || t.session.ttl < shortest {
				shortest = t.session.ttl
			}
		}
	}
	e.mu.Unlock()
	sessions := make([]*session, 0, len(bySession))
	for s := range bySession {
		sessions = append(sessions, s)
	}
	each(sessions, func(s *session) {
		ctx := ctx
		if len(sessions) > 1 { // one that hangs must not delay the answers of the others: the core asks again
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, max(shortest/3, time.Second))
			defer cancel()
		}
		e.renewSession(ctx, s, bySession[s])
	})
	each(others, func(i int) { errs[i] = e.renewOther(ctx, rs[i].Hold) })
	return errs
}

// renewSession renews tickets that share a session.
func (e *Engine) renewSession(ctx context.Context, s *session, rs []renewal) {
	ts := make([]*ticket, len(rs))
	for i, r := range rs {
		ts[i] = r.ticket
	}
	begun := time.Now()
	var missing []*ticket
	err := e.keepAlive(ctx, s)
	if err == nil {
		missing, err = e.missing(ctx, e.lookedFor(s, ts))
	}
	if err != nil && !errors.Is(err, ErrSessionOver) {
		err = e.failed(ctx, err)
		for _, r := range rs {
			*r.err = err
		}
		return
	}
	lost := make(map[*ticket]bool, len(missing))
	e.mu.Lock()
	defer e.unlock()
	for _, t := range missing {
		lost[t] = true
		if t.state == held { // the answer says so to the caller
			e.forget(t)
		}
		t.queue.deleted(Gone{Key: t.Key, Before: t.Number + 1})
	}
	for _, r := range rs {
		switch {
		case lost[r.ticket]:
			*r.err = errDeleted
		case r.session.over: // and the ticket with it
			*r.err = errSessionLost
		default:
			r.extend(begun)
		}
	}
}

// lookedFor returns which tickets of a session a renewal looks for: if the session is watched
// for losses, those of which the watch may have reported the loss and, of the others,
// Options.LookFor that were not looked for the longest.
func (e *Engine) lookedFor(s *session, ts []*ticket) []*ticket {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.reported == 0 {
		return ts
	}
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.seen, b.seen) })
	unsure, _ := slices.BinarySearchFunc(ts, s.reported, func(t *ticket, at uint64) int { return cmp.Compare(t.seen, at) })
	return ts[:min(unsure+e.opts.LookFor, len(ts))]
}

// extend notes the renewal of a lease that is not renewed on schedule. With mu held.
func (r renewal) extend(begun time.Time) {
	if until := begun.Add(min(r.ttl, r.session.ttl)); !r.until.IsZero() && until.After(r.until) {
		r.until = until
	}
}

// Shorten implements driver.Shortener: it moves the ticket to a session of that length, which
// nobody keeps alive, so the ticket ends with it. If that is not answered, the ticket may be on
// either session: the new one is kept for it. It lasts long enough, so a late request does no harm.
func (e *Engine) Shorten(ctx context.Context, h driver.Hold, d time.Duration) error {
	begun := time.Now()
	ctx, done := e.bind(ctx)
	defer done()
	d = (d + time.Second - 1).Truncate(time.Second) // all that are shortened at Close share a session
	length, err := e.store.Class(&driver.Request{TTL: d})
	if err != nil {
		return e.failed(ctx, err)
	}
	e.mu.Lock()
	t := e.find(h)
	if t == nil || t.state != held {
		e.mu.Unlock()
		return driver.ErrLost
	}
	if t.stays > 0 { // for the caller, the minimum hold may have begun later
		t.stays = max(t.stays, begun.Add(d).Sub(t.since))
	}
	asked, long := t.Ticket, begun.Add(length).Before(t.session.sent.Add(t.session.ttl))
	e.mu.Unlock()
	if !long {
		return nil
	}
	to, err := e.attach(ctx, kind{length, true}, begun)
	if err != nil {
		return e.failed(ctx, err)
	}
	err = e.store.Move(ctx, &asked, to.id)
	if err != nil && !isRefused(err) {
		e.mu.Lock()
		to.mayHave = true
		e.mu.Unlock()
		return e.failed(ctx, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && t.state != gone {
		t.session.needed, to.needed = t.session.needed-t.callers, to.needed+t.callers
		to, t.session, t.Session = t.session, to, to.id
	}
	e.detach(to)
	return err
}

// renewOther answers the renewal of a ticket that is being released, or that this driver
// does not know. It does not renew the ticket; it returns ErrLost if the store lacks it.
func (e *Engine) renewOther(ctx context.Context, h driver.Hold) error {
	rec, err := e.lookUp(ctx, h)
	switch {
	case err != nil:
		return e.failed(ctx, err)
	case rec == nil:
		return driver.ErrLost
	}
	return errNotOurs
}
