package kvqueue

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver.
func (e *Engine) Inspect(ctx context.Context, name string) (queue []driver.Ticket, err error) {
	err = Ask(ctx, e, func(ctx context.Context) error {
		queue, err = e.inspect(ctx, name)
		return err
	})
	return queue, err
}

func (e *Engine) inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	recs, err := e.store.Tickets(ctx, name)
	if err != nil {
		return nil, err
	}
	queue := make([]driver.Ticket, len(recs))
	for i, r := range recs {
		queue[i] = r.Shown
	}
	var foreign []*Record
	for i, granted := range driver.Granted(queue) {
		recs[i].Shown.Held = granted
		if !granted {
			recs[i].Shown.Remaining = 0
		}
		if granted && !e.refine(&recs[i]) {
			foreign = append(foreign, &recs[i])
		}
	}
	if len(foreign) > 0 {
		if err := e.store.Remaining(ctx, foreign); err != nil {
			return nil, err
		}
	}
	for i, r := range recs {
		queue[i] = r.Shown
	}
	return queue, nil
}

// refine adds what is known of a ticket that this driver holds, or reports false.
func (e *Engine) refine(r *Record) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tickets[r.ID]
	if t == nil || t.Number != r.Number || t.state != held {
		return false
	}
	r.Shown.Since = t.since
	end := t.session.sent.Add(t.session.ttl)
	if !t.until.IsZero() && t.until.Before(end) {
		end = t.until
	}
	r.Shown.Remaining = max(time.Until(end), time.Millisecond)
	return true
}

// lookUp finds a ticket in the store, by its ID, or returns nil.
func (e *Engine) lookUp(ctx context.Context, h driver.Hold) (*Record, error) {
	recs, err := e.store.Tickets(ctx, h.Name)
	if err != nil {
		return nil, err
	}
	for i, r := range recs {
		if r.ID == h.ID && (h.Token == 0 || h.Token == r.Shown.Token) {
			return &recs[i], nil
		}
	}
	return nil, nil
}
