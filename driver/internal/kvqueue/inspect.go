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
	queue := Shown(recs)
	for i, granted := range driver.Granted(queue) {
		if queue[i].Held = granted; granted {
			e.refine(&queue[i])
		} else {
			queue[i].Remaining = 0
		}
	}
	return queue, nil
}

// Shown returns a queue as the driver interface shows it.
func Shown(recs []Record) []driver.Ticket {
	queue := make([]driver.Ticket, len(recs))
	for i, r := range recs {
		queue[i] = r.Shown
	}
	return queue
}

// refine adds what is known of a ticket that this driver holds.
func (e *Engine) refine(shown *driver.Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tickets[shown.ID]
	if t == nil || t.Number != shown.Token || t.state != held {
		return
	}
	shown.Since = t.since
	end := t.session.sent.Add(t.session.ttl)
	if !t.until.IsZero() && t.until.Before(end) {
		end = t.until
	}
	shown.Remaining = max(time.Until(end), time.Millisecond)
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
