package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer. It takes one request for each session,
// and one for every 64 tickets, which asks whether they are still there.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	ctx, done := d.bind(ctx)
	defer done()
	errs := make([]error, len(rs))
	bySession := make(map[*session][]renewal)
	var others []int // to be renewed one by one
	d.mu.Lock()
	for i, r := range rs {
		t := d.tickets[r.ID]
		switch {
		case t == nil || t.name != r.Name || r.TTL > t.s.ttl || t.target != nil:
			others = append(others, i)
		case !t.held:
			errs[i] = driver.ErrLost
		default:
			bySession[t.s] = append(bySession[t.s], renewal{i, t})
		}
	}
	d.mu.Unlock()
	var group sync.WaitGroup
	for s, batch := range bySession {
		group.Go(func() { d.renewTogether(ctx, s, batch, errs) })
	}
	for _, i := range others {
		errs[i] = d.renewAlone(ctx, rs[i])
	}
	group.Wait()
	return errs
}

// A renewal is a ticket to be renewed, and the place of its answer.
type renewal struct {
	i int
	t *ticket
}

// renewTogether renews tickets that share a session.
func (d *Driver) renewTogether(ctx context.Context, s *session, batch []renewal, errs []error) {
	alive, err := d.renewSession(ctx, s)
	switch {
	case err != nil:
		err = failure(ctx, err)
	case !alive:
		err = errSessionLost
	}
	if err != nil {
		for _, r := range batch {
			errs[r.i] = err
		}
		return
	}
	atOnce := make(chan struct{}, 8)
	var group sync.WaitGroup
	for chunk := range slices.Chunk(batch, checkMost) {
		atOnce <- struct{}{}
		group.Go(func() {
			defer func() { <-atOnce }()
			d.checkHolds(ctx, s, chunk, errs)
		})
	}
	group.Wait()
}

// checkHolds asks whether the tickets are still there: that a session lives
// does not say so.
func (d *Driver) checkHolds(ctx context.Context, s *session, batch []renewal, errs []error) {
	keys := make([]string, len(batch))
	for n, r := range batch {
		keys[n] = r.t.key
	}
	missing, err := d.store.missing(ctx, s.id, keys)
	if err != nil {
		for _, r := range batch {
			errs[r.i] = failure(ctx, err)
		}
		return
	}
	for _, n := range missing {
		r := batch[n]
		switch at, moving := d.sessionOf(r.t); {
		case at != s: // it was moved to a longer one meanwhile
			continue
		case moving:
			errs[r.i] = errMoving
			continue
		}
		if d.detach(r.t) {
			d.left(r.t.name, r.t.number)
		}
		errs[r.i] = errGone
	}
}

// renewAlone renews a ticket that needs a longer session than it has, or that
// this driver does not know.
func (d *Driver) renewAlone(ctx context.Context, r driver.Renewal) error {
	k, err := d.sessionTTL(&driver.Request{TTL: r.TTL})
	if err != nil {
		return err
	}
	t := d.ticketOf(r.ID)
	if t == nil || t.name != r.Name {
		return d.renewForeign(ctx, r)
	}
	if err := d.move(ctx, t, k); err != nil {
		return failure(ctx, err)
	}
	return nil
}

// renewForeign renews a ticket that another driver has taken, as well as a
// session's TTL allows.
func (d *Driver) renewForeign(ctx context.Context, r driver.Renewal) error {
	queue, _, err := d.store.queue(ctx, r.Name)
	if err != nil {
		return failure(ctx, err)
	}
	i := slices.IndexFunc(queue, func(e entry) bool { return e.ID == r.ID })
	if i < 0 || !driver.Grantable(tickets(queue[:i+1]), i) {
		return driver.ErrLost
	}
	if time.Duration(queue[i].TTL)*time.Millisecond < r.TTL {
		return fmt.Errorf("%w: a longer lease for a ticket of another process", driver.ErrUnsupported)
	}
	alive, err := d.store.renewSession(ctx, queue[i].Session)
	if err != nil {
		return failure(ctx, err)
	}
	if !alive {
		return driver.ErrLost
	}
	return nil
}

// Release implements driver.Driver: one request. It does not end with Close,
// which comes when all is released.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if err := d.endEntering(ctx, h.ID); err != nil {
		return err
	}
	return d.remove(ctx, h)
}

// remove removes a ticket from the store.
func (d *Driver) remove(ctx context.Context, h driver.Hold) error {
	t := d.ticketOf(h.ID)
	if t == nil {
		return failure(ctx, d.removeForeign(ctx, h))
	}
	if t.name != h.Name {
		return driver.ErrLost
	}
	d.mu.Lock()
	e, created := t.entry(), !t.unsure && t.number > 0
	d.mu.Unlock()
	var err error
	if created {
		err = d.store.delete(ctx, e)
	} else {
		err = d.withdraw(ctx, t, e)
	}
	lost := errors.Is(err, driver.ErrLost)
	d.mu.Lock()
	if lost {
		d.answered(t.s, nil)
	} else {
		d.answered(t.s, err)
	}
	d.mu.Unlock()
	if err != nil && !lost {
		return failure(ctx, err)
	}
	if d.detach(t) {
		d.endWait(t, errReleased)
		d.left(t.name, t.number)
	}
	return err
}

// removeForeign removes a ticket that this driver does not know.
func (d *Driver) removeForeign(ctx context.Context, h driver.Hold) error {
	queue, _, err := d.store.queue(ctx, h.Name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(queue, func(e entry) bool { return e.ID == h.ID })
	if i < 0 {
		return driver.ErrLost
	}
	return d.store.delete(ctx, queue[i])
}

// sessionOf returns t's session, and whether t may be in another by now.
func (d *Driver) sessionOf(t *ticket) (s *session, moving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.s, t.target != nil
}

// withdraw removes a ticket whose creation was not answered, and may yet happen.
func (d *Driver) withdraw(ctx context.Context, t *ticket, e entry) error {
	d.mu.Lock()
	first := t.first
	first.retired = true
	d.unuse(first)
	moved := t.s != first
	d.mu.Unlock()
	e.Session = first.id
	err := d.store.withdraw(ctx, e)
	switch {
	case !errors.Is(err, errSession):
		return err
	case moved: // it may live without its first session, but not be created any more
		d.mu.Lock()
		e = t.entry()
		d.mu.Unlock()
		return d.store.delete(ctx, e)
	}
	d.sessionOver(first)
	return errGone
}

// failure is the error of a request: the driver's end, if that was the cause.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx, err)
	}
	return mark(err)
}
