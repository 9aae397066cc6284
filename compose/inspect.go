package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver: first the tickets that are only on other stores
// (programs of another step of a migration), then the queue of the first store. A ticket
// is held if every store that has it reports that, and no ticket ahead blocks it.
func (m *AllDriver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	queues, err := m.queues(ctx, name)
	if err != nil {
		return nil, err
	}
	return m.merge(queues), nil
}

// queues asks all parts for the queue of a name.
func (m *AllDriver) queues(ctx context.Context, name string) ([][]driver.Ticket, error) {
	queues := make([][]driver.Ticket, len(m.parts))
	err := m.each(func(i int, d driver.Driver) (err error) {
		queues[i], err = d.Inspect(ctx, name)
		return err
	})
	return queues, err
}

// merge makes one queue of all.
func (m *AllDriver) merge(queues [][]driver.Ticket) []driver.Ticket {
	var first, others []driver.Ticket
	for i, q := range queues {
		for _, t := range q {
			switch {
			case slices.ContainsFunc(queues[:i], func(q []driver.Ticket) bool { return find(q, t.ID) >= 0 }):
			case i == 0:
				first = append(first, m.mergeTicket(t, queues))
			default:
				others = append(others, m.mergeTicket(t, queues))
			}
		}
	}
	all := append(others, first...)
	for i, granted := range driver.Granted(all) {
		if !granted || !all[i].Held {
			all[i].Held, all[i].Remaining = false, 0
		}
	}
	return all
}

// mergeTicket combines what all stores report of a ticket.
func (m *AllDriver) mergeTicket(t driver.Ticket, queues [][]driver.Ticket) driver.Ticket {
	for i, q := range queues {
		j := find(q, t.ID)
		if j < 0 {
			continue
		}
		if i == m.authority {
			t.Token = q[j].Token
		}
		t.Held = t.Held && q[j].Held
		t.Remaining = min(t.Remaining, q[j].Remaining)
		if q[j].Since.After(t.Since) {
			t.Since = q[j].Since
		}
	}
	return t
}

func find(q []driver.Ticket, id string) int {
	return slices.IndexFunc(q, func(t driver.Ticket) bool { return t.ID == id })
}

// List implements driver.Lister: the names of all stores.
func (m *AllDriver) List(ctx context.Context) ([]string, error) {
	lists := make([][]string, len(m.parts))
	err := m.each(func(i int, d driver.Driver) (err error) {
		lists[i], err = list(ctx, d)
		return err
	})
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all), err
}

// Break implements driver.Breaker: it removes the ticket that Inspect shows with that
// token from all stores. A token of the authority has precedence over an equal number
// of a waiter.
func (m *AllDriver) Break(ctx context.Context, name string, token uint64) error {
	queues, err := m.queues(ctx, name)
	if err != nil {
		return err
	}
	ofToken := func(t driver.Ticket) bool { return t.Token == token }
	q := queues[m.authority]
	at := slices.IndexFunc(q, ofToken)
	if at < 0 {
		q = m.merge(queues)
		at = slices.IndexFunc(q, ofToken)
	}
	if at < 0 {
		return driver.ErrLost
	}
	for i := range m.parts {
		if _, ok := m.parts[i].(driver.Breaker); !ok && find(queues[i], q[at].ID) >= 0 {
			return fmt.Errorf("%w: break on %s", driver.ErrUnsupported, nameOf(m.parts[i]))
		}
	}
	return m.each(func(i int, d driver.Driver) error {
		j := find(queues[i], q[at].ID)
		if j < 0 {
			return nil
		}
		if err := breakTicket(ctx, d, name, queues[i][j].Token); !errors.Is(err, driver.ErrLost) {
			return err
		}
		return nil
	})
}
