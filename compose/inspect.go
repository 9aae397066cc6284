package compose

import (
	"context"
	"errors"
	"slices"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver: the queue of the first store, behind whoever is
// only on another one (programs of another generation). A ticket is held when
// all stores hold it, and has the token of the authority once it has one there.
func (m *Multi) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	queues, err := m.queues(ctx, name)
	if err != nil {
		return nil, err
	}
	var first, others []driver.Ticket
	seen := make(map[string]bool)
	for i, q := range queues {
		for _, t := range q {
			switch {
			case seen[t.ID]:
			case i == 0:
				first = append(first, m.merge(t, queues))
			default:
				others = append(others, m.merge(t, queues))
			}
			seen[t.ID] = true
		}
	}
	return append(others, first...), nil
}

// queues asks all parts for the queue of a name.
func (m *Multi) queues(ctx context.Context, name string) ([][]driver.Ticket, error) {
	queues := make([][]driver.Ticket, len(m.parts))
	err := m.each(func(i int, d driver.Driver) (err error) {
		queues[i], err = d.Inspect(ctx, name)
		return err
	})
	return queues, err
}

// merge is a ticket as all stores see it together.
func (m *Multi) merge(t driver.Ticket, queues [][]driver.Ticket) driver.Ticket {
	places, held := 0, 0
	for i, q := range queues {
		j := slices.IndexFunc(q, func(o driver.Ticket) bool { return o.ID == t.ID })
		if j < 0 {
			continue
		}
		places++
		if q[j].Held {
			held++
			t.Remaining = min(t.Remaining, q[j].Remaining)
		}
		if i == m.authority {
			t.Token = q[j].Token
		}
	}
	// Who is on one store only is of a generation that knows no other.
	if t.Held = held == len(m.parts) || held == 1 && places == 1 && !m.mine(t.ID); !t.Held {
		t.Remaining = 0
	}
	return t
}

func (m *Multi) mine(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.books[id] != nil
}

// List implements driver.Lister: the names of all stores that can list.
func (m *Multi) List(ctx context.Context) ([]string, error) {
	lists := make([][]string, len(m.parts))
	err := m.each(func(i int, d driver.Driver) (err error) {
		lister, ok := d.(driver.Lister)
		if !ok {
			return driver.ErrUnsupported
		}
		lists[i], err = lister.List(ctx)
		return err
	})
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all), err
}

// Break implements driver.Breaker: it removes the ticket from all stores.
func (m *Multi) Break(ctx context.Context, name string, token uint64) error {
	tickets, err := m.Inspect(ctx, name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(tickets, func(t driver.Ticket) bool { return t.Token == token })
	if at < 0 {
		return driver.ErrLost
	}
	queues, err := m.queues(ctx, name)
	if err != nil {
		return err
	}
	return m.each(func(i int, d driver.Driver) error {
		b, ok := d.(driver.Breaker)
		if !ok {
			return driver.ErrUnsupported
		}
		for _, t := range queues[i] {
			if t.ID == tickets[at].ID {
				if err := b.Break(ctx, name, t.Token); !errors.Is(err, driver.ErrLost) {
					return err
				}
			}
		}
		return nil
	})
}
