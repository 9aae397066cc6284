package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

var errRemoved = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// Inspect implements driver.Driver.
func (d *Driver) Inspect(_ context.Context, name string) ([]driver.Ticket, error) {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.closed {
		return nil, driver.ErrClosed
	}
	ln := d.s.lines[name]
	if ln == nil {
		return nil, nil
	}
	ln.settle(now)
	var tickets []driver.Ticket
	for _, q := range []*queue{&ln.holders, &ln.waiters} {
		for t := q.first; t != nil; t = t.next {
			tickets = append(tickets, t.show(now))
		}
	}
	slices.SortFunc(tickets, func(a, b driver.Ticket) int { return cmp.Compare(a.Token, b.Token) })
	return tickets, nil
}

func (t *ticket) show(now time.Time) driver.Ticket {
	s := t.req.Ticket(t.token)
	s.Held, s.Since = t.held, t.since
	if t.held {
		s.Remaining = t.until.Sub(now)
	}
	return s
}

// List implements driver.Lister.
func (d *Driver) List(context.Context) ([]string, error) {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	var names []string
	for name, ln := range d.s.lines {
		if ln.settle(now); d.s.lines[name] == ln {
			names = append(names, name)
		}
	}
	return names, nil
}
