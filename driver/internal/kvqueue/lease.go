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
	err := e.keepAlive(ctx, s)
	if errors.Is(err, ErrSessionOver) {
		err = errSessionLost
	}
	var missing []*ticket
	if err == nil {
		missing, err = e.missing(ctx, s, e.lookedFor(s, ts))
	}
	if err != nil {
		if !errors.Is(err, driver.ErrLost) {
			err = e.failed(ctx, err)
		}
		for _, r := range rs {
			*r.err = err
		}
		return
	}
	lost := make(map[*ticket]bool, len(missing))
	e.mu.Lock()
	for _, t := range missing {
		lost[t] = true
		if t.state == held { // the answer says so to the caller
			e.forget(t)
		}
	}
	e.unlock()
	for _, r := range rs {
		if lost[r.ticket] {
			*r.err = errDeleted
		} else if *r.err = e.lengthen(ctx, r, begun); *r.err == nil {
			e.extend(r, begun)
		}
	}
}

// lookedFor returns which tickets of a session a renewal looks for: if the session is watched
// for losses, those of which the watch may have reported the loss and, of the others,
// Options.LookFor that were not looked for the longest. A move that is not answered is
// repeated, and tells whether its ticket is there.
func (e *Engine) lookedFor(s *session, ts []*ticket) []*ticket {
	e.mu.Lock()
	defer e.mu.Unlock()
	ts = slices.DeleteFunc(ts, func(t *ticket) bool { return t.moving != nil })
	if s.reported == 0 {
		return ts
	}
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.seen, b.seen) })
	unsure, _ := slices.BinarySearchFunc(ts, s.reported, func(t *ticket, at uint64) int { return cmp.Compare(t.seen, at) })
	return ts[:min(unsure+e.opts.LookFor, len(ts))]
}

// extend notes the renewal of a lease that is not renewed on schedule.
func (e *Engine) extend(r renewal, begun time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if until := begun.Add(r.ttl); !r.until.IsZero() && until.After(r.until) {
		r.until = until
	}
}

// lengthen moves a ticket to a session of another class if it needs a longer one. While
// a move is not answered the ticket may be in either session, and each renewal asks
// again for the same move.
func (e *Engine) lengthen(ctx context.Context, r renewal, begun time.Time) error {
	for moved := false; ; moved = true {
		to, counted, err := e.longer(ctx, r, begun)
		switch {
		case err != nil:
			return e.failed(ctx, err)
		case to == nil && moved:
			return e.stillThere(ctx, r.ticket)
		case to == nil:
			return nil
		}
		if err := e.move(ctx, r.ticket, to, counted, false); err != nil {
			return err
		}
	}
}

// stillThere looks for a ticket that was moved, if it may have been broken before the move was
// answered: it may be that nobody renews it again.
func (e *Engine) stillThere(ctx context.Context, t *ticket) error {
	e.mu.Lock()
	s, unsure := t.session, t.unsure()
	e.mu.Unlock()
	if !unsure {
		return nil
	}
	missing, err := e.missing(ctx, s, []*ticket{t})
	switch {
	case err != nil:
		return e.failed(ctx, err)
	case len(missing) == 0:
		return nil
	}
	e.mu.Lock()
	defer e.unlock()
	if t.state == held { // the answer says so to the caller
		e.forget(t)
	}
	return errDeleted
}

// longer returns the session to which a ticket must be moved, or nil. That is the target
// of a move that was not answered. Otherwise, if the ticket's own session is too short, it
// is another one, which counts the ticket from then on. Both were kept alive since begun.
func (e *Engine) longer(ctx context.Context, r renewal, begun time.Time) (to *session, counted bool, err error) {
	e.mu.Lock()
	s, to := r.session, r.moving
	short, stale := r.ttl > s.ttl, s.sent.Before(begun)
	e.mu.Unlock()
	switch {
	case to != nil:
		return to, false, e.keepAlive(ctx, to)
	case stale: // another renewal has moved the ticket there
		if err = e.keepAlive(ctx, s); errors.Is(err, ErrSessionOver) {
			err = errSessionLost
		}
	}
	if err != nil || !short {
		return nil, false, err
	}
	length, err := e.store.Class(ctx, &driver.Request{TTL: r.ttl, Renewed: true})
	if err != nil || length <= s.length {
		return nil, false, err
	}
	to, err = e.attach(ctx, kind{length, s.minHold}, begun)
	return to, err == nil, err
}

// move moves a ticket to a session. It does nothing if another renewal has done that
// meanwhile, has begun to move the ticket elsewhere or, unless the move shortens the lease,
// has moved it to a session that is as long.
func (e *Engine) move(ctx context.Context, t *ticket, to *session, counted, shortens bool) error {
	e.mu.Lock()
	asked := t.Ticket
	begins := counted && t.moving == nil && t.session != to && (shortens || to.length > t.session.length)
	if counted && (!begins || t.state != held) {
		e.detach(to)
	}
	switch {
	case t.state != held:
		e.mu.Unlock()
		return driver.ErrLost
	case !begins && t.moving != to:
		e.mu.Unlock()
		return nil
	}
	t.moving = to
	t.moves++
	begun := e.tick()
	e.mu.Unlock()
	err := e.store.Move(ctx, &asked, to.id)
	e.mu.Lock()
	defer e.unlock()
	switch {
	case t.state == gone:
		return errDeleted
	case err == nil:
		if t.moving == to { // else another renewal was faster, or the old session has ended meanwhile
			e.moved(t, begun)
		}
		return nil
	case errors.Is(err, driver.ErrLost) && (t.moving == to || t.session == to):
		e.forget(t)
		return errDeleted
	case errors.Is(err, driver.ErrLost): // the ticket is elsewhere by now
		return nil
	case errors.Is(err, ErrSessionOver):
		e.sessionOver(to)
	case isRefused(err) && t.moving == to:
		if t.moves--; t.moves == 0 {
			t.moving = nil
			e.detach(to)
		}
	}
	return e.failed(ctx, err)
}

// moved notes that a ticket is in the session to which it was moved, and when it was seen
// there. With mu held.
func (e *Engine) moved(t *ticket, seen uint64) {
	old := t.session
	t.session, t.moving, t.moves, t.Session = t.moving, nil, 0, t.moving.id
	t.seen = seen
	e.detach(old)
	e.planLossWatch(t)
}

// Shorten implements driver.Shortener: it moves the ticket to a session of that length. The
// engine keeps no session of a holder alive, so the ticket ends with it. If an earlier move
// was not answered, it is finished first: the ticket may be in either session.
func (e *Engine) Shorten(ctx context.Context, h driver.Hold, d time.Duration) error {
	begun := time.Now()
	ctx, done := e.bind(ctx)
	defer done()
	length, err := e.store.Class(ctx, &driver.Request{TTL: d})
	if err != nil {
		return e.failed(ctx, err)
	}
	for {
		t, to, err := e.shorter(ctx, h, begun, d, length)
		if t == nil || err != nil {
			return err
		}
		resumed := to != nil
		if !resumed {
			if to, err = e.attach(ctx, kind{length, true}, begun); err != nil {
				return e.failed(ctx, err)
			}
		}
		if err := e.move(ctx, t, to, !resumed, true); err != nil || !resumed {
			return err
		}
	}
}

// shorter returns a ticket whose lease is longer than begun and length, or nil, and the
// target of a move that was not answered, or nil. That lives for d after begun.
func (e *Engine) shorter(ctx context.Context, h driver.Hold, begun time.Time, d, length time.Duration) (*ticket, *session, error) {
	e.mu.Lock()
	t := e.find(h)
	if t == nil || t.state != held {
		e.mu.Unlock()
		return nil, nil, driver.ErrLost
	}
	s, to := t.session, t.moving
	long := begun.Add(length).Before(s.sent.Add(s.ttl))
	soon := to != nil && to.sent.Add(to.ttl).Before(begun.Add(d))
	if t.stays > 0 { // for the caller, the minimum hold may have begun later
		t.stays = max(t.stays, begun.Add(d).Sub(t.since))
	}
	e.mu.Unlock()
	switch {
	case to == nil && !long:
		return nil, nil, nil
	case soon:
		err := e.keepAlive(ctx, to)
		if errors.Is(err, ErrSessionOver) {
			return e.shorter(ctx, h, begun, d, length) // nothing is moved there
		}
		if err != nil {
			return nil, nil, e.failed(ctx, err)
		}
	}
	return t, to, nil
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
