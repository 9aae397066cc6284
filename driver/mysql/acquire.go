package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Bounds of one acquisition.
const (
	takeBound = 10 * time.Second       // for the statements that take a ticket, with or without their caller
	takeGrace = 250 * time.Millisecond // as long does a release wait for them before it ends them
	takeLast  = 20 * time.Millisecond  // as long does a caller whose ctx has ended wait for what they say
	takeTries = 20                     // as often may a line change while a ticket is being taken
)

var errRestless = errors.New("the line changed faster than a ticket could be taken")

// A ticket is one that was taken.
type ticket struct {
	token   uint64
	asked   time.Time // before the statement that took it
	granted bool
}

// A behind is a ticket that was not granted at the gate of its line.
type behind struct {
	token uint64
	crowd bool // others stood behind it when it was found to be next
}

// A taking is a ticket that is being taken, and not answered for.
type taking struct {
	done   chan struct{}
	cancel context.CancelFunc
}

// An unknown is a ticket of which a request was not answered.
type unknown struct {
	kept  uint64    // the number of the row that it was to take; 0: none
	until time.Time // when no other request can arrive any more
}

// unknownUntil takes down that a request to take a ticket was not answered.
func (d *Driver) unknownUntil(id string, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.unknown[id]
	if until.After(u.until) {
		u.until = until
	}
	d.unknown[id] = u
}

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if ctx.Err() != nil {
		return driver.Grant{}, d.unqueued(r.ID, context.Cause(ctx))
	}
	d.sweepLater()
	t, err := d.takeAgain(ctx, r)
	if err == nil && !t.granted {
		t, err = d.take(ctx, r)
	}
	if err != nil {
		return driver.Grant{}, d.unqueued(r.ID, d.failed(ctx, err))
	}
	if t.granted {
		return driver.Grant{Token: t.token, Asked: t.asked}, nil
	}
	g, err := d.settle(ctx, r, t)
	return g, d.failed(ctx, err)
}

// unqueued marks the error of a request after which there is no ticket, unless there is one for all that is known.
func (d *Driver) unqueued(id string, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, unknown := d.unknown[id]
	_, queued := d.queued[id]
	if unknown || queued || d.pending[id] != nil || errors.Is(err, driver.ErrNotAcquired) {
		return err
	}
	return driver.NoTicket(err)
}

// asking is the context of the statements that take a ticket. It outlives that
// of the caller, without whom none is begun any more.
type asking struct {
	context.Context
	caller context.Context //nolint:containedctx // it is what the type is for
	id     string
}

// take takes a ticket. A statement that does so is not given up with ctx: it
// would leave a ticket of which nobody knows. It goes on by itself, within a
// bound, and Release of the ticket waits for it.
func (d *Driver) take(ctx context.Context, r driver.Request) (ticket, error) {
	var (
		t   ticket
		err error
	)
	alone, cancel := context.WithTimeout(d.ctx, takeBound)
	p := &taking{done: make(chan struct{}), cancel: cancel}
	d.mu.Lock()
	d.pending[r.ID] = p
	d.mu.Unlock()
	began := d.begin(func() {
		defer cancel()
		t, err = d.takeNow(asking{alone, ctx, r.ID}, r)
		d.mu.Lock()
		if err == nil && !t.granted {
			d.queued[r.ID] = behind{token: t.token}
		}
		if d.pending[r.ID] == p {
			delete(d.pending, r.ID)
		}
		d.mu.Unlock()
		close(p.done)
	})
	if !began {
		cancel()
		return t, driver.ErrClosed
	}
	select {
	case <-p.done:
		return t, err
	case <-ctx.Done():
	}
	if answered(p.done, takeLast) {
		return t, err
	}
	d.unknownUntil(r.ID, time.Time{}) // an answer may come from now on, which the caller does not get
	return ticket{}, context.Cause(ctx)
}

// answered waits for done, but not for long.
func answered(done <-chan struct{}, bound time.Duration) bool {
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// endTaking waits until no statement that takes the ticket is under way. One that is not answered
// soon, because the way to the database may be cut, is given up.
func (d *Driver) endTaking(ctx context.Context, id string) error {
	d.mu.Lock()
	p := d.pending[id]
	d.mu.Unlock()
	if p == nil {
		return nil
	}
	grace := time.AfterFunc(takeGrace, p.cancel)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeNow asks again, for the same ticket, when the connection broke.
func (d *Driver) takeNow(ctx asking, r driver.Request) (t ticket, err error) {
	for range 3 {
		if r.Wait {
			t, err = d.takeWaiting(ctx, r)
		} else {
			t, err = d.takeOrNot(ctx, r)
		}
		if !broken(err) {
			break
		}
	}
	return t, err
}

// takeWaiting takes the gate of a free line, or a place behind it.
func (d *Driver) takeWaiting(ctx asking, r driver.Request) (ticket, error) {
	knocked := d.poller.watches(r.Name) || d.keeper.crowded(r.Name) // then the line has a gate, most likely
	for range takeTries {
		if !knocked {
			t, err := d.enter(ctx, r, true)
			if err != nil || t.granted {
				return t, err
			}
		}
		if t, ok, err := d.queue(ctx, r, "queue"); err != nil || ok {
			return t, err
		}
		knocked = false
		d.keeper.crowd(r.Name, false)
	}
	return ticket{}, errRestless
}

// takeOrNot takes a ticket only when it is granted at once. One that stands in the queue since an earlier
// request of the same ID is returned.
func (d *Driver) takeOrNot(ctx asking, r driver.Request) (ticket, error) {
	for range takeTries {
		t, err := d.enter(ctx, r, false)
		if err != nil || t.granted {
			return t, err
		}
		free, again, err := d.room(ctx, r)
		switch {
		case err != nil:
			return ticket{}, err
		case again:
			continue
		case !free:
			return ticket{}, driver.ErrNotAcquired
		}
		if t, err := d.enter(ctx, r, true); err != nil || t.granted {
			return t, err
		}
		if t, ok, err := d.queue(ctx, r, "admit"); err != nil || ok {
			return t, err
		}
	}
	return ticket{}, errRestless
}

// room tells whether one more ticket would be granted now; again, that dead ones
// were removed. A line in which the ticket stands already has room for it.
func (d *Driver) room(ctx context.Context, r driver.Request) (free, again bool, err error) {
	most := 1
	if r.Shared {
		most = readersMost
		if r.Limit > 0 {
			most = min(r.Limit, readersMost)
		}
	}
	rows, err := d.head(ctx, r.Name, most)
	if err != nil {
		return false, false, err
	}
	if anyDead(rows) {
		if n, err := d.bury(ctx, r.Name); err != nil || n > 0 {
			return false, true, err
		}
	}
	free = len(rows) == 0 || r.Shared && (r.Limit == 0 || len(rows) < r.Limit)
	for _, t := range rows {
		if t.id == r.ID {
			return true, false, nil
		}
		free = free && t.shared
	}
	return free, false, nil
}

// enter takes the gate of a free line. A ticket without a number means that others stand
// there; with knock they know.
func (d *Driver) enter(ctx asking, r driver.Request, knock bool) (ticket, error) {
	for try := 0; ; try++ {
		t, err := d.takeFree(ctx, r, knock)
		if t.granted {
			d.keeper.granted(r, t.token)
		}
		if number(err) != errNull || try == 2 {
			return t, err
		}
		if err := d.restart(ctx, try); err != nil {
			return ticket{}, err
		}
	}
}

// takeFree inserts the gate of a line, or takes the one that somebody kept.
func (d *Driver) takeFree(ctx asking, r driver.Request, knock bool) (ticket, error) {
	v, err := d.valuesOf(ctx, r)
	if err != nil {
		return ticket{}, err
	}
	v.knock = knock
	asked := time.Now()
	res, err := d.execWanted(ctx, "enter", v)
	if err != nil {
		return ticket{}, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return ticket{}, err
	}
	last, err := res.LastInsertId()
	if err != nil || last == 0 {
		return ticket{}, err
	}
	token := uint64(last) //nolint:gosec // counts from 1
	if n == 1 {           // inserted
		token *= turns
	}
	return ticket{token: token, asked: asked, granted: true}, nil
}

// queue takes a place behind the gate, by a statement that does so; false when there is no gate, or no room.
func (d *Driver) queue(ctx asking, r driver.Request, statement string) (ticket, bool, error) {
	v, err := d.valuesOf(ctx, r)
	if err != nil {
		return ticket{}, false, err
	}
	asked := time.Now()
	res, err := d.execWanted(ctx, statement, v)
	switch number(err) {
	case errDuplicate, errNull: // the gate may be this very ticket's
		return d.standing(ctx, r)
	}
	if err != nil {
		return ticket{}, false, err
	}
	seq, err := res.LastInsertId()
	t := ticket{token: uint64(seq) * turns, asked: asked, granted: statement == "admit"} //nolint:gosec // counts from 1
	return t, true, err
}

// standing finds the ticket that an earlier request of the same ID took. One that
// is held is renewed, so that its lease counts from now.
func (d *Driver) standing(ctx context.Context, r driver.Request) (ticket, bool, error) {
	token, err := d.find(ctx, r.Name, r.ID)
	if err != nil || token == 0 {
		return ticket{}, false, err
	}
	t := ticket{token: token, asked: time.Now()}
	err = d.Renew(ctx, r.Hold(token), r.TTL)
	t.granted = err == nil
	if errors.Is(err, driver.ErrLost) {
		err = nil // it waits
	}
	return t, true, err
}

// settle claims what a ticket behind the gate is due, or waits for it. It stands in
// line: where it may wait, a database that cannot be reached is waited for too.
func (d *Driver) settle(ctx context.Context, r driver.Request, t ticket) (driver.Grant, error) {
	w := &waiter{
		seat: seat{token: t.token, shared: r.Shared, permits: r.Limit},
		name: r.Name, id: r.ID, ttl: r.TTL, news: make(chan outcome, 1),
	}
	held, err := d.settleNow(ctx, w)
	switch {
	case held:
		return driver.Grant{Token: t.token, Asked: w.claimed}, nil
	case r.Wait && (err == nil || !errors.Is(err, driver.ErrLost) && ctx.Err() == nil):
		if r.Joined != nil {
			r.Joined()
		}
		return d.poller.wait(ctx, w)
	case err != nil:
		return driver.Grant{}, err
	}
	if err := d.Release(ctx, r.Hold(t.token)); err != nil && !errors.Is(err, driver.ErrLost) {
		return driver.Grant{}, err
	}
	return driver.Grant{}, driver.ErrNotAcquired
}

// settleNow looks once, and claims what is due.
func (d *Driver) settleNow(ctx context.Context, w *waiter) (held bool, err error) {
	v, rows, err := d.look(ctx, w.name, w.seat)
	w.seen = rows
	if err != nil || v != granted {
		return false, err
	}
	w.claimed = time.Now()
	tokens, err := d.claim(ctx, []uint64{w.token}, w.ttl)
	if err == nil && !tokens[w.token] {
		err = driver.ErrLost
	}
	return err == nil, err
}

// claim makes holders of tickets that were seen to be next, and returns those
// that are.
func (d *Driver) claim(ctx context.Context, tokens []uint64, ttl time.Duration) (map[uint64]bool, error) {
	v := values{tokens: tokens, ttl: ttl}
	n, err := d.change(ctx, "claim", v)
	if err != nil {
		return nil, err
	}
	if n < int64(len(tokens)) {
		return d.tokens(ctx, "holding", v)
	}
	all := make(map[uint64]bool, len(tokens))
	for _, t := range tokens {
		all[t] = true
	}
	return all, nil
}
