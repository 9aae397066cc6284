package casqueue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// atOnce is how many documents are read with one request.
const atOnce = 100

// Renew implements driver.Driver.
func (e *Engine) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return e.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer: with one heartbeat for all tickets, and by reading their documents.
// What is written besides is the leases that heartbeats do not renew, and documents that the store would forget.
func (e *Engine) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	ctx, done := e.bind(ctx)
	defer done()
	err := e.prepare(ctx, rs)
	changes := make([]*change, len(rs))
	e.mu.Lock()
	for i := range rs {
		switch {
		case e.closed:
			errs[i] = driver.ErrClosed
		case err == nil:
			if changes[i], errs[i] = e.renew(ctx, &rs[i]); changes[i] != nil {
				e.submit(e.fileOf(e.key(rs[i].Name)), changes[i])
			}
		}
	}
	e.mu.Unlock()
	for i, c := range changes {
		switch {
		case err != nil:
			errs[i] = e.failed(ctx, err)
		case c != nil:
			errs[i] = e.await(ctx, c)
		}
	}
	return errs
}

// await waits for a change.
func (e *Engine) await(ctx context.Context, c *change) error {
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return e.stopped(ctx)
	}
}

// prepare sends a heartbeat, if any of the tickets needs one, and reads the documents of all.
func (e *Engine) prepare(ctx context.Context, rs []driver.Renewal) error {
	needed := false
	var files []*file
	e.mu.Lock()
	for i := range rs {
		if t := e.held(&rs[i].Hold); t != nil {
			needed = needed || !t.fixed
		}
		files = append(files, e.fileOf(e.key(rs[i].Name)))
	}
	e.mu.Unlock()
	if needed {
		if err := e.sendHeartbeat(ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(files, func(a, b *file) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	for chunk := range slices.Chunk(slices.Compact(files), atOnce) {
		if err := e.sample(ctx, nil, chunk); err != nil {
			return err
		}
	}
	return nil
}

// held returns the ticket of a hold if this process holds it. With mu held.
func (e *Engine) held(h *driver.Hold) *ticket {
	t := e.tickets[h.ID]
	if t == nil || t.name != h.Name || t.state != held {
		return nil
	}
	return t
}

// renew decides about one renewal, after the heartbeat: it is done, or needs a change. With mu held.
func (e *Engine) renew(ctx context.Context, r *driver.Renewal) (*change, error) {
	f, now := e.fileOf(e.key(r.Name)), time.Now()
	t := e.held(&r.Hold)
	if f.broken != nil {
		return nil, f.broken
	}
	if t == nil {
		if q := f.doc.find(r.Name); q.index(r.ID) >= 0 && e.tickets[r.ID] == nil {
			return nil, errNotOurs
		}
		return nil, driver.ErrLost
	}
	ttl := e.lease(r.TTL)
	if ttl < t.ttl && t.leased && now.Add(ttl).Before(t.promised) {
		ttl = t.ttl // a renewal never shortens the lease
	}
	forgotten := keepTickets - min(ttl/2, keepTickets*3/4) // soon, by the store
	if t.leased && !t.fixed && ttl == t.ttl && !t.lapsed(now) && now.Sub(f.written) < forgotten {
		if end := t.alive.Add(ttl); end.After(t.promised) {
			t.promised = end
		}
		return nil, nil
	}
	return e.rewrite(ctx, t, ttl), nil
}

// rewrite is the change that begins a lease anew or, if it is over, removes the ticket.
func (e *Engine) rewrite(ctx context.Context, t *ticket, ttl time.Duration) *change {
	var written record
	c := &change{ctx: ctx, urgent: true}
	c.apply = func(d *document, fresh bool) (bool, error) {
		q := d.find(t.name)
		i := q.index(t.id)
		switch {
		case i < 0 && !fresh:
			return false, errStale
		case i < 0:
			return false, errBroken
		case t.lapsed(time.Now()):
			q.remove(i)
			return true, errLapsed
		}
		q.Tickets[i].hold(ttl, !t.renewed)
		written = q.Tickets[i]
		return true, nil
	}
	c.done = func(sent time.Time, err error) {
		switch {
		case t.state != held:
		case errors.Is(err, driver.ErrLost):
			e.lose(t, err)
		case err == nil:
			e.hold(t, &written, sent)
		}
	}
	return c
}
