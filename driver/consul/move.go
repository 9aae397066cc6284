package consul

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

var errMoving = errors.New("it is not known in which session the ticket is")

// move gives a held ticket to a session of a longer TTL. The key stays, and so
// does its number.
//
// When the answer is lost, the ticket may be in either session, and the request
// may yet be executed. So the ticket keeps its place in the new session, which
// therefore lives, and every later renewal repeats the move to that same
// session: it is executed once, whichever request does it.
func (d *Driver) move(ctx context.Context, t *ticket, k kind) error {
	for {
		place, err := d.placeFor(ctx, t, k)
		if err != nil {
			return err
		}
		done, err := d.moveTo(ctx, t, place)
		switch {
		case err != nil:
			d.dropPlace(t)
			return err
		case done && place.s.ttl >= k.ttl:
			return nil
		}
	}
}

// placeFor is the ticket's place in another session: that to which it may have
// been moved already, or a new one. The session was renewed after the call began.
func (d *Driver) placeFor(ctx context.Context, t *ticket, k kind) (*ticket, error) {
	now := time.Now()
	d.mu.Lock()
	place, keep := t.place, t.keep
	k.minHold = t.s.minHold
	d.mu.Unlock()
	if place != nil {
		return place, d.ensureOnce(ctx, place.s, now)
	}
	place, err := d.attach(ctx, &ticket{name: t.name, id: "move " + t.id, mover: t, keep: keep}, k, now)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] != t {
		d.detachLocked(place)
		return nil, driver.ErrLost
	}
	t.place = place
	return place, nil
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

// moveTo moves t to its place. False, with no error: it has to be looked at
// again.
func (d *Driver) moveTo(ctx context.Context, t, place *ticket) (bool, error) {
	p, err := d.store.get(ctx, t.key)
	if err != nil {
		return false, err
	}
	d.mu.Lock()
	old, held, number, dropped := t.s, t.held, t.number, t.place != place
	d.mu.Unlock()
	switch {
	case dropped: // its session has ended
		return false, nil
	case !held:
		return false, driver.ErrLost
	case p == nil || p.CreateIndex != number || p.Session != old.id && p.Session != place.s.id:
		d.lose(t, errGone)
		return false, errGone
	case p.Session == place.s.id:
		d.moved(t, p.ModifyIndex)
		return true, nil
	}
	unlock := keyOp(api.KVUnlock, t.key)
	unlock.KV.Session = old.id
	pairs, err := d.store.commit(ctx, indexOp(*p), unlock, lockOp(t.key, place.s.id, p.Value))
	var refused *rollback
	switch {
	case err == nil:
		d.moved(t, pairs[len(pairs)-1].ModifyIndex)
		return true, nil
	case unknown(err):
		d.setDoubt(place)
		return false, err
	case !errors.As(err, &refused):
		return false, err
	}
	if what, _ := refused.failed(2); strings.Contains(what, "invalid session") {
		d.bury(place.s)
	}
	return false, nil // or an earlier request was executed meanwhile
}

// moved notes that t is in the session of its place.
func (d *Driver) moved(t *ticket, modify uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] == t && t.place != nil {
		t.modify = modify
		d.movedLocked(t)
	}
}

func (d *Driver) movedLocked(t *ticket) {
	from, place := t.s, t.place
	t.place = nil
	delete(from.tickets, t.id)
	t.s = place.s
	t.s.tickets[t.id] = t
	d.detachLocked(place)
	d.settle(from)
}

// dropPlace takes t's place in another session back if it cannot be moved there
// any more.
func (d *Driver) dropPlace(t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.place != nil && !t.place.doubt {
		d.detachLocked(t.place)
		t.place = nil
	}
}
