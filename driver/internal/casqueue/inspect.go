package casqueue

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver. Like a waiter, it observes the queue and removes expired tickets, so a ticket that
// was not shown does not come back.
func (e *Engine) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	ctx, done := e.bind(ctx)
	defer done()
	f := e.file(name)
	if err := e.read(ctx, f); err != nil {
		return nil, e.failed(ctx, err)
	}
	if e.consult(ctx, f, false) {
		if err := e.change(ctx, f.key, e.reaping()); err != nil {
			return nil, e.failed(ctx, err)
		}
	}
	return e.show(f, name), nil
}

// show returns a queue.
func (e *Engine) show(f *file, name string) []driver.Ticket {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	q := f.doc.find(name)
	shown := make([]driver.Ticket, len(q.Tickets))
	for i := range q.Tickets {
		r := &q.Tickets[i]
		shown[i] = driver.Ticket{
			ID: r.ID, Token: r.Token, Owner: r.Owner, Note: r.Note, Shared: r.Shared, Limit: r.Limit,
			Since: time.UnixMilli(r.Since),
		}
	}
	for i, is := range driver.Granted(shown) {
		if shown[i].Held = is; is {
			shown[i].Remaining = e.remaining(&q.Tickets[i], now)
		}
	}
	return shown
}

// remaining is what is left of a lease, as far as this process knows. With mu held.
func (e *Engine) remaining(r *record, now time.Time) time.Duration {
	since, _ := e.silence(r, now)
	if t := e.tickets[r.ID]; t != nil {
		since = t.alive
	}
	return max(r.life()-now.Sub(since), time.Millisecond)
}
