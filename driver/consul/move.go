package consul

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

var errMoving = errors.New("it is not known in which session the ticket is")

// move gives a held ticket to a session of a longer TTL. The key stays, and so
// does its number.
//
// When the answer is lost, the ticket may be in either session, and the request
// may yet be executed. So a target stands for it in the new session, which
// therefore lives, and every later renewal repeats the move to that same
// session: it is executed once, whichever request does it.
func (d *Driver) move(ctx context.Context, t *ticket, k kind) error {
	for {
		target, err := d.targetFor(ctx, t, k)
		if err != nil {
			return err
		}
		done, err := d.moveTo(ctx, t, target)
		switch {
		case err != nil:
			d.dropTarget(t)
			return err
		case done && target.s.ttl >= k.ttl:
			return nil
		}
	}
}

// targetFor is what stands for the ticket in another session: that to which it may
// have been moved already, or a new one. The session was renewed after the call
// began.
func (d *Driver) targetFor(ctx context.Context, t *ticket, k kind) (*ticket, error) {
	now := time.Now()
	d.mu.Lock()
	target, keep := t.target, t.keep
	k.minHold = t.s.minHold
	d.mu.Unlock()
	if target != nil {
		return target, d.ensureOnce(ctx, target.s, now)
	}
	target, err := d.attach(ctx, &ticket{name: t.name, id: "move " + t.id, targetOf: t, keep: keep}, k, now)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] != t {
		d.detachLocked(target)
		return nil, driver.ErrLost
	}
	t.target = target
	return target, nil
}

// ensureOnce renews s unless it was renewed after since.
func (d *Driver) ensureOnce(ctx context.Context, s *session, since time.Time) error {
	d.mu.Lock()
	usable := s.ended || !s.asked.Before(since)
	d.mu.Unlock()
	if usable {
		return nil // that it has ended the transaction finds
	}
	_, err := d.renewSession(ctx, s)
	return err
}

// moveTo moves t to its target. False, with no error: look at it again.
func (d *Driver) moveTo(ctx context.Context, t, target *ticket) (bool, error) {
	d.mu.Lock()
	e, held, dropped := t.entry(), t.held, t.target != target
	d.mu.Unlock()
	switch {
	case dropped: // its session has ended
		return false, nil
	case !held:
		return false, driver.ErrLost
	}
	e, err := d.store.move(ctx, e, target.s.id)
	switch {
	case err == nil:
		d.moved(t, e.ModifyIndex)
		return true, nil
	case errors.Is(err, errSession):
		d.sessionOver(target.s)
		return false, nil
	case errors.Is(err, driver.ErrLost):
		d.mu.Lock()
		dropped = t.target != target // the first session has ended meanwhile
		d.mu.Unlock()
		if dropped {
			return false, nil
		}
		d.lose(t, errGone)
	case unknown(err):
		d.setUnsure(target)
	}
	return false, err
}

// moved notes that t is in the session of its target.
func (d *Driver) moved(t *ticket, modify uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] == t && t.target != nil {
		t.modify = modify
		d.movedLocked(t)
	}
}

func (d *Driver) movedLocked(t *ticket) {
	from, target := t.s, t.target
	t.target = nil
	delete(from.tickets, t.id)
	t.s = target.s
	t.s.tickets[t.id] = t
	d.detachLocked(target)
	d.settle(from)
}

// dropTarget forgets t's target if it cannot be moved there any more.
func (d *Driver) dropTarget(t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.target != nil && !t.target.unsure {
		d.detachLocked(t.target)
		t.target = nil
	}
}
