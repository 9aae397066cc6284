package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

// checkMost is how many tickets one request asks for.
const checkMost = 64

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
		case t == nil || t.name != r.Name || r.TTL > t.s.ttl || t.place != nil:
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
	missing, err := d.missing(ctx, s.id, keys)
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

// missing returns which keys the session does not lock. What an old leader
// misses is asked again, exactly.
func (d *Driver) missing(ctx context.Context, session string, keys []string) ([]int, error) {
	at, err := d.store.checkSession(ctx, session, keys, false)
	if err != nil || len(at) == 0 {
		return nil, err
	}
	some := make([]string, len(at))
	for i, n := range at {
		some[i] = keys[n]
	}
	sure, err := d.store.checkSession(ctx, session, some, true)
	if err != nil {
		return nil, err
	}
	for i, n := range sure {
		sure[i] = at[n]
	}
	return sure, nil
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
	line, err := d.readLine(ctx, r.Name)
	if err != nil {
		return failure(ctx, err)
	}
	i := slices.IndexFunc(line, func(e entry) bool { return e.ID == r.ID })
	if i < 0 || !driver.Grantable(tickets(line[:i+1]), i) {
		return driver.ErrLost
	}
	if time.Duration(line[i].TTL)*time.Millisecond < r.TTL {
		return fmt.Errorf("%w: a longer lease for a ticket of another process", driver.ErrUnsupported)
	}
	alive, err := d.store.renewSession(ctx, line[i].Session)
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

// remove takes a ticket out of the store.
func (d *Driver) remove(ctx context.Context, h driver.Hold) error {
	t := d.ticketOf(h.ID)
	if t != nil && t.name != h.Name {
		return driver.ErrLost
	}
	var err error
	if t != nil && d.doubtful(t) {
		err = d.bar(ctx, t, h)
	} else {
		err = d.deleteTicket(ctx, t, h)
	}
	var refused *rollback
	gone := errors.As(err, &refused)
	if gone {
		err = nil
	}
	if t != nil {
		d.mu.Lock()
		d.heard(t.s, err)
		d.mu.Unlock()
	}
	if err != nil {
		return failure(ctx, err)
	}
	if t != nil && d.detach(t) {
		d.endWait(t, errReleased)
		d.left(t.name, t.number)
	}
	if gone {
		return driver.ErrLost
	}
	return nil
}

// deleteTicket fails with a rollback if the ticket is not there. The key may be
// another ticket's by the time that the request arrives, so it goes by the index.
func (d *Driver) deleteTicket(ctx context.Context, t *ticket, h driver.Hold) error {
	if t != nil {
		d.mu.Lock()
		p := pair{Key: t.key, ModifyIndex: t.modify}
		d.mu.Unlock()
		err := d.deletePair(ctx, h.Name, p)
		var refused *rollback
		if !errors.As(err, &refused) || strings.Contains(refused.Error(), "doesn't exist") {
			return err
		}
	}
	for { // it is not known to this driver, or was changed since
		line, err := d.readLine(ctx, h.Name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(line, func(e entry) bool { return e.ID == h.ID })
		if i < 0 {
			return &rollback{}
		}
		err = d.deletePair(ctx, h.Name, line[i].pair)
		var refused *rollback
		if !errors.As(err, &refused) {
			return err
		}
	}
}

func (d *Driver) deletePair(ctx context.Context, name string, p pair) error {
	return d.writes.do(ctx, d.keys.line(name), indexOp(p), keyOp(api.KVDelete, p.Key))
}

// sessionOf returns t's session, and whether t may be in another by now.
func (d *Driver) sessionOf(t *ticket) (s *session, moving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.s, t.place != nil
}

var errReleased = fmt.Errorf("%w: the ticket was released while it waited", driver.ErrLost)

func (d *Driver) doubtful(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.doubt || t.number == 0
}

// bar removes a ticket whose creation was not answered, which may yet happen:
// the request may lie with an agent that looks for a leader, or on a line that
// is cut. A key that the transaction of Acquire checks for keeps the ticket from
// being created afterwards. It dies with the session, which takes no new
// tickets, so that it need not live long.
func (d *Driver) bar(ctx context.Context, t *ticket, h driver.Hold) error {
	d.mu.Lock()
	s := t.home
	s.retired = true
	d.unuse(s)
	moved := t.s != s
	d.mu.Unlock()
	err := d.store.do(ctx,
		lockOp(d.keys.barred(s.id, t.id), s.id, nil),
		keyOp(api.KVDelete, t.key)) // which stays this ticket's: the session is retired
	var refused *rollback
	switch {
	case !errors.As(err, &refused):
		return err
	case moved: // its first session has ended
		return d.deleteTicket(ctx, t, h)
	}
	d.bury(s) // without its session the ticket can neither be nor come
	return err
}

// failure is the error of a request: the driver's end, if that was the cause.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx, err)
	}
	return mark(err)
}
