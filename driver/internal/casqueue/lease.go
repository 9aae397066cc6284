package casqueue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
)

// Renew implements driver.Driver.
func (e *Engine) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return e.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer. It sends one heartbeat for all tickets and reads their documents. It writes
// only leases that a heartbeat alone does not renew, and documents that the store would forget.
func (e *Engine) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	ctx, done := e.bind(ctx)
	defer done()
	errs, changes := e.prepare(ctx, rs), make([]*change, len(rs))
	e.mu.Lock()
	for i := range rs {
		if errs[i] == nil {
			changes[i], errs[i] = e.renew(ctx, &rs[i])
		}
	}
	e.mu.Unlock()
	for i, c := range changes {
		if c != nil {
			errs[i] = e.await(ctx, c)
		} else {
			errs[i] = e.failed(ctx, errs[i])
		}
	}
	return errs
}

// prepare sends a heartbeat, if any of the tickets needs one, and reads the documents of all. It does both at once,
// because a short lease has time for few requests. The reading may be older than the answer to the heartbeat. That
// does no harm: before the answer, nobody can have taken a ticket for dead that had not lapsed. A document that the store
// refuses fails only its own renewals.
func (e *Engine) prepare(ctx context.Context, rs []driver.Renewal) []error {
	needed := false
	errs, of, files := make([]error, len(rs)), make([]*file, len(rs)), make(map[*file]error)
	e.mu.Lock()
	for i := range rs {
		if t := e.held(&rs[i].Hold); t != nil {
			needed = needed || !t.fixed
		}
		of[i] = e.fileOf(e.key(rs[i].Name))
		files[of[i]] = nil
	}
	e.mu.Unlock()
	var both sync.WaitGroup
	var sent error
	if needed {
		both.Go(func() { sent = e.sendHeartbeat(ctx) })
	}
	_ = e.sample(ctx, nil, files) // it notes the errors in files
	both.Wait()
	for i, f := range of {
		errs[i] = cmp.Or(sent, files[f])
	}
	return errs
}

// held returns the ticket of a hold if this process holds it. With mu held.
func (e *Engine) held(h *driver.Hold) *ticket {
	t := e.tickets[h.ID]
	if t == nil || t.name != h.Name || t.state != held {
		return nil
	}
	return t
}

// renew makes one renewal, after the heartbeat. If that needs a change, renew submits and returns it. With mu held.
func (e *Engine) renew(ctx context.Context, r *driver.Renewal) (*change, error) {
	f, now := e.fileOf(e.key(r.Name)), time.Now()
	t := e.held(&r.Hold)
	if f.broken != nil {
		return nil, f.broken
	}
	if t == nil {
		q := f.doc.find(r.Name)
		if i := q.index(r.ID); i >= 0 && q.Tickets[i].Process != e.process {
			return nil, errNotOurs
		}
		return nil, driver.ErrLost
	}
	ttl := e.lease(r.TTL)
	as := ttl
	if t.leased {
		as = t.notShorter(ttl, t.ttl, now)
	}
	forgotten := keepTickets - min(as/2, keepTickets*3/4) // the store may forget the document soon
	if t.last == nil && t.leased && !t.fixed && as == t.ttl && t.renewable(now) && life.Elapsed(f.putSent, now) < forgotten && t.recorded(f) {
		if end := t.alive.Add(ttl); end.After(t.promised) {
			t.promised = end
		}
		return nil, nil
	}
	c := e.begin(ctx, t, ttl, held)
	e.submit(f, c)
	return c, nil
}

// Shorten implements driver.Shortener. No other sign of life of the ticket will come. So its record says that by the
// store's clock it was there when Shorten was called: who reads it after its life can remove it at once.
func (e *Engine) Shorten(ctx context.Context, h driver.Hold, d time.Duration) error {
	ctx, done := e.bind(ctx)
	defer done()
	e.mu.Lock()
	t := e.held(&h)
	c := &change{urgent: true}
	if t != nil { // now, since seen is of now
		d = min(d, time.Until(t.promised))
	}
	e.mu.Unlock()
	if t == nil {
		return driver.ErrLost
	}
	var seen *observation
	if clock, ok := e.store.(Clock); ok {
		if now, err := e.time(ctx, clock); err == nil { // otherwise others have to observe the ticket
			seen = &observation{Clock: now.Clock, At: now.Latest}
		}
	}
	c.apply = func(doc *document, _ bool) (bool, error) {
		q := doc.find(t.name)
		i := q.index(t.id)
		switch {
		case i < 0:
			return false, errBroken
		case t.lapsed(time.Now()):
			q.remove(i)
			return true, errLapsed
		}
		q.Tickets[i].hold(max(d, time.Millisecond), true)
		q.Tickets[i].Observed = seen
		t.last, t.shortened = c, true
		return true, nil
	}
	c.done = func(_ time.Time, err error) {
		if t.shortened = false; err == nil || errors.Is(err, driver.ErrLost) {
			e.forget(t)
		}
	}
	return e.change(ctx, t.file.key, c)
}

// recorded reports whether the document has the lease of a ticket. A store that has lost its last changes may have the
// ticket without it. With mu held.
func (t *ticket) recorded(f *file) bool {
	q := f.doc.find(t.name)
	i := q.index(t.id)
	return i >= 0 && q.Tickets[i].Lease > 0 && q.Tickets[i].TTL == t.ttl
}

// notShorter returns the TTL with which to renew a lease for ttl, if its TTL in the document is has: a renewal never
// shortens a lease. If has is longer than t.ttl, another renewal asked for it just before. With mu held.
func (t *ticket) notShorter(ttl, has time.Duration, now time.Time) time.Duration {
	if has > t.ttl || now.Add(ttl).Before(t.promised) {
		return max(ttl, has)
	}
	return ttl
}

// begin returns the change that begins the lease of a ticket, or begins it anew. It removes a held ticket whose lease
// is over instead. With mu held.
func (e *Engine) begin(ctx context.Context, t *ticket, ttl time.Duration, from state) *change {
	var written record
	c := &change{ctx: ctx, urgent: true}
	c.apply = func(d *document, _ bool) (bool, error) {
		q := d.find(t.name)
		i := q.index(t.id)
		switch {
		case i < 0: // it was removed: the known document is not older than the ticket
			return false, errBroken
		case t.state != from || t.shortened: // its process has given it up since this was asked for
			return false, errBroken
		case from == held && t.lapsed(time.Now()):
			q.remove(i)
			return true, errLapsed
		}
		as := ttl
		if q.Tickets[i].Lease > 0 {
			as = t.notShorter(ttl, q.Tickets[i].TTL, time.Now())
		}
		q.Tickets[i].hold(as, !t.renewed)
		t.last, written = c, q.Tickets[i]
		return true, nil
	}
	c.done = func(sent time.Time, err error) {
		if err == nil && t.last == c {
			t.last = nil
		}
		switch {
		case t.state != from:
		case errors.Is(err, driver.ErrLost):
			e.lose(t, err)
		case err == nil:
			e.hold(t, &written, sent, ttl)
		case from == claiming:
			t.state = waiting // until the document is read the next time
		}
	}
	return c
}
