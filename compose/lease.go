package compose

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// hold is how a part knows the ticket.
func (m *Multi) hold(i int, h driver.Hold) driver.Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.Token = 0
	if b := m.books[h.ID]; b != nil {
		h.Token = b.tokens[i]
	}
	return h
}

// Renew implements driver.Driver. A lock that one part has lost is lost.
func (m *Multi) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return m.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer: one batch for each part.
func (m *Multi) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	answers := make([][]error, len(m.parts))
	_ = m.each(func(i int, d driver.Driver) error {
		batch := make([]driver.Renewal, len(rs))
		for j, r := range rs {
			batch[j] = driver.Renewal{Hold: m.hold(i, r.Hold), TTL: max(r.TTL, driver.BoundsOf(d, r.TTL).MinTTL)}
		}
		answers[i] = renewAll(ctx, d, batch)
		return nil
	})
	errs := make([]error, len(rs))
	for j := range rs {
		for i := range m.parts {
			if err := answers[i][j]; err != nil && !errors.Is(errs[j], driver.ErrLost) {
				errs[j] = err
			}
		}
	}
	return errs
}

// renewAll renews on one part. A short answer is no answer.
func renewAll(ctx context.Context, d driver.Driver, rs []driver.Renewal) []error {
	if b, ok := d.(driver.BatchRenewer); ok {
		if errs := b.RenewAll(ctx, rs); len(errs) == len(rs) {
			return errs
		}
	}
	errs := make([]error, len(rs))
	for i, r := range rs {
		errs[i] = d.Renew(ctx, r.Hold, r.TTL)
	}
	return errs
}

// Release implements driver.Driver. It is done when all parts have said so; the
// parts that have are not asked again.
func (m *Multi) Release(ctx context.Context, h driver.Hold) error {
	lost, found := make([]bool, len(m.parts)), make([]bool, len(m.parts))
	err := m.each(func(i int, d driver.Driver) error {
		if m.wasReleased(i, h.ID) {
			found[i] = true
			return nil
		}
		err := d.Release(ctx, m.hold(i, h))
		switch {
		case err == nil:
			found[i] = true
			m.setReleased(i, h.ID)
		case errors.Is(err, driver.ErrLost):
			lost[i] = true
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	b := m.books[h.ID]
	delete(m.books, h.ID)
	m.mu.Unlock()
	held := b != nil && b.granted
	if held && slices.Contains(lost, true) || !slices.Contains(found, true) {
		return driver.ErrLost
	}
	return nil
}

func (m *Multi) wasReleased(i int, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[id]
	return b != nil && b.released[i]
}

func (m *Multi) setReleased(i int, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.books[id]; b != nil {
		b.released[i] = true
	}
}
