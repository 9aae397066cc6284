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

var (
	// errNotOurs is the error of renewOther for a ticket that is in the store.
	errNotOurs = fmt.Errorf("%w: renewal of a ticket that is being released, or belongs to another process", driver.ErrUnsupported)
	// errNoAnswer ends a turn.
	errNoAnswer = driver.Unavailable(errors.New("the store has not moved the ticket in time"))
)

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
	switch {
	case err == nil:
		missing, err = e.missing(ctx, e.lookedFor(s, ts))
	case errors.Is(err, ErrSessionOver):
		err = nil // a ticket that was moved is not lost with the session
	}
	if err != nil {
		err = e.failed(ctx, err)
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
	e.mu.Lock()
	over := r.session.over
	lasts := r.turn == nil && r.moving == nil && r.seen >= r.doubt && r.ttl <= r.session.ttl && !r.session.sent.Before(begun)
	e.mu.Unlock()
	switch {
	case over: // and the ticket with it
		return errSessionLost
	case lasts: // the usual case
		return nil
	}
	turn, end, err := e.takeTurn(ctx, r.ticket)
	if err != nil {
		return e.failed(ctx, err)
	}
	defer end()
	if err := e.finishMove(turn, r.ticket); err != nil {
		if errors.Is(err, driver.ErrLost) {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, tryBound) // the move may have taken all of the turn
		defer cancel()
		return e.withoutMove(ctx, r, begun, err)
	}
	if err := e.toLonger(turn, r, begun); err != nil {
		return err
	}
	return e.stillThere(turn, r.ticket)
}

// takeTurn waits until no other call moves the ticket. It returns the context of a turn, which
// ends in time for the next one if a request hangs.
func (e *Engine) takeTurn(ctx context.Context, t *ticket) (turn context.Context, end func(), err error) {
	mine := make(chan struct{})
	for {
		e.mu.Lock()
		other, bound := t.turn, max(t.session.ttl/freshPart, tryBound)
		if other == nil {
			t.turn = mine
		}
		e.mu.Unlock()
		if other == nil {
			turn, cancel := context.WithTimeoutCause(ctx, bound, errNoAnswer)
			return turn, func() {
				cancel()
				e.mu.Lock()
				defer e.mu.Unlock()
				t.turn = nil
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return ctx, nil, ctx.Err()
		}
	}
}

// finishMove repeats a move that was not answered, if there is one. With the ticket's turn.
func (e *Engine) finishMove(ctx context.Context, t *ticket) error {
	e.mu.Lock()
	to := t.moving
	e.mu.Unlock()
	if to == nil {
		return nil
	}
	err := e.keepAlive(ctx, to)
	switch {
	case errors.Is(err, ErrSessionOver):
		return nil // the ticket is not there, or is lost
	case err != nil:
		return e.failed(ctx, err)
	}
	return e.move(ctx, t, to, true)
}

// toLonger keeps the session of a ticket alive unless that was done since begun, and moves the
// ticket if the session is too short. Another renewal of the ticket may have an answer already,
// for a lease that began later: so the new session does not end before the old one. With the
// ticket's turn.
func (e *Engine) toLonger(ctx context.Context, r renewal, begun time.Time) error {
	e.mu.Lock()
	s := r.session
	short, stale := r.ttl > s.ttl, s.sent.Before(begun)
	since := s.sent
	e.mu.Unlock()
	if stale { // another renewal has moved the ticket there
		since = begun
		if err := e.keepAlive(ctx, s); errors.Is(err, ErrSessionOver) {
			return errSessionLost
		} else if err != nil {
			return e.failed(ctx, err)
		}
	}
	if !short {
		return nil
	}
	length, err := e.store.Class(ctx, &driver.Request{TTL: r.ttl, Renewed: true})
	if err == nil && length <= s.length {
		return nil
	}
	var to *session
	if err == nil {
		to, err = e.attach(ctx, kind{length, s.minHold}, since)
	}
	if err != nil {
		return e.failed(ctx, err)
	}
	return e.move(ctx, r.ticket, to, false)
}

// withoutMove returns the answer to a renewal that has repeated a move in vain, perhaps since
// the store takes no writes: if the ticket is there, on either session, both live as long as
// its own, and that may be enough. With the ticket's turn.
func (e *Engine) withoutMove(ctx context.Context, r renewal, begun time.Time, err error) error {
	e.mu.Lock()
	s, to := r.session, r.moving
	enough := to != nil && r.ttl <= min(s.ttl, to.ttl) && !s.sent.Before(begun) && !to.sent.Before(begun)
	e.mu.Unlock()
	if !enough {
		return err
	}
	return e.lookFor(ctx, r.ticket)
}

// stillThere looks for a ticket that was moved, if it may have been broken before the move was
// answered: it may be that nobody renews it again.
func (e *Engine) stillThere(ctx context.Context, t *ticket) error {
	e.mu.Lock()
	unsure := t.unsure()
	e.mu.Unlock()
	if !unsure {
		return nil
	}
	return e.lookFor(ctx, t)
}

// lookFor returns the answer to a renewal of a ticket that is to be looked for.
func (e *Engine) lookFor(ctx context.Context, t *ticket) error {
	missing, err := e.missing(ctx, []*ticket{t})
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

// move moves a ticket to a session that counts it, or asks for that again. With the ticket's turn.
func (e *Engine) move(ctx context.Context, t *ticket, to *session, again bool) error {
	e.mu.Lock()
	asked, begun := t.Ticket, e.tick()
	switch {
	case again && t.moving != to: // one of the two sessions has ended: the ticket is looked for
		e.mu.Unlock()
		return nil
	case t.state != held:
		if !again {
			e.detach(to)
		}
		e.mu.Unlock()
		return driver.ErrLost
	}
	t.moving = to
	e.mu.Unlock()
	err := e.store.Move(ctx, &asked, to.id)
	if known, answer := e.moveEnded(t, to, again, begun, err); known {
		return answer
	}
	return e.failed(ctx, err)
}

// moveEnded notes what has become of a move, from the error of its request. It reports whether it is known that
// the ticket was moved, or that it has gone.
func (e *Engine) moveEnded(t *ticket, to *session, again bool, begun uint64, err error) (known bool, answer error) {
	e.mu.Lock()
	defer e.unlock()
	ended := t.moving != to // one of the two sessions, meanwhile
	switch {
	case t.state == gone:
		return true, errDeleted
	case err == nil && !ended:
		e.moved(t, begun)
		return true, nil
	case err == nil && t.session == to:
		return true, nil
	case err == nil, errors.Is(err, driver.ErrLost): // it has ended with the new session, or is not there
		e.forget(t)
		return true, errDeleted
	case errors.Is(err, ErrSessionOver):
		e.sessionOver(to)
	case isRefused(err) && !again && !ended:
		t.moving = nil
		e.detach(to)
	}
	return false, nil
}

// moved notes that a ticket is in the session to which it was moved, and when it was seen
// there. With mu held.
func (e *Engine) moved(t *ticket, seen uint64) {
	old := t.session
	t.session, t.moving, t.Session = t.moving, nil, t.moving.id
	t.seen = seen
	e.detach(old)
}

// Shorten implements driver.Shortener: it moves the ticket to a session of that length. The
// engine keeps no session of a holder alive, so the ticket ends with it.
func (e *Engine) Shorten(ctx context.Context, h driver.Hold, d time.Duration) error {
	begun := time.Now()
	ctx, done := e.bind(ctx)
	defer done()
	length, err := e.store.Class(ctx, &driver.Request{TTL: d})
	if err != nil {
		return e.failed(ctx, err)
	}
	e.mu.Lock()
	t := e.find(h)
	if t != nil && t.stays > 0 { // for the caller, the minimum hold may have begun later
		t.stays = max(t.stays, begun.Add(d).Sub(t.since))
	}
	e.mu.Unlock()
	if t == nil {
		return driver.ErrLost
	}
	ctx, end, err := e.takeTurn(ctx, t)
	if err != nil {
		return e.failed(ctx, err)
	}
	defer end()
	if err := e.finishMove(ctx, t); err != nil {
		return err
	}
	e.mu.Lock()
	isHeld, long := t.state == held, begun.Add(length).Before(t.session.sent.Add(t.session.ttl))
	e.mu.Unlock()
	switch {
	case !isHeld:
		return driver.ErrLost
	case !long:
		return nil
	}
	to, err := e.attach(ctx, kind{length, true}, begun)
	if err != nil {
		return e.failed(ctx, err)
	}
	return e.move(ctx, t, to, false)
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
