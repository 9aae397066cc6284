package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// part is the state of a ticket on one store. All may have one that has no book.
func (m *AllDriver) part(i int, h driver.Hold) part {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.books[keyOf(h)]; b != nil {
		return b.parts[i]
	}
	return part{asked: true}
}

// change changes the state of a ticket on one store. It reports false if the ticket has no
// book: it was removed meanwhile.
func (m *AllDriver) change(i int, h driver.Hold, f func(p *part)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[keyOf(h)]
	if b != nil {
		f(&b.parts[i])
	}
	return b != nil
}

// hold is the hold of a ticket with the part's token.
func (m *AllDriver) hold(i int, h driver.Hold) driver.Hold {
	h.Token = m.part(i, h).token
	return h
}

// Renew implements driver.Driver. A lock that one part has lost is lost.
func (m *AllDriver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return m.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer: one batch for each part.
func (m *AllDriver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	answers := make([][]error, len(m.parts))
	_ = m.each(func(i int, d driver.Driver) error {
		batch := slices.Clone(rs)
		for j := range batch {
			batch[j].Hold = m.hold(i, batch[j].Hold)
		}
		answers[i] = renewAll(ctx, d, batch)
		return nil
	})
	errs := make([]error, len(rs))
	for j := range rs {
		for i, d := range m.parts {
			if err := answers[i][j]; err != nil {
				errs[j] = errors.Join(errs[j], fmt.Errorf("%s: %w", nameOf(d), err))
			}
		}
	}
	return errs
}

// Shorten implements driver.Shortener, on all parts that can. On the others the ticket stays
// for the rest of its TTL. A lock that one part has lost is lost. While one has not answered
// its error counts alone, so that it is asked again.
func (m *AllDriver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	answers := make([]error, len(m.parts))
	unanswered := m.each(func(i int, d driver.Driver) error {
		err := shorten(ctx, d, m.hold(i, h), left)
		if errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnsupported) {
			answers[i] = fmt.Errorf("%s: %w", nameOf(d), err)
			return nil
		}
		return err
	})
	if unanswered != nil {
		return unanswered
	}
	return errors.Join(answers...)
}

// Release implements driver.Driver. It is done when all parts have answered. A part that was
// never asked for the ticket is not asked to remove it: it may be away while the others answer.
// The core checks again for a late request only if no store has the ticket. If some have it, a
// late request may still bring it to another one: it becomes an orphan there.
func (m *AllDriver) Release(ctx context.Context, h driver.Hold) error {
	lost, found := make([]bool, len(m.parts)), make([]bool, len(m.parts))
	err := m.each(func(i int, d driver.Driver) error {
		if !m.part(i, h).asked {
			return nil
		}
		err := d.Release(ctx, m.hold(i, h))
		switch {
		case err == nil:
			found[i] = true
		case errors.Is(err, driver.ErrLost):
			lost[i] = true
			m.change(i, h, func(p *part) {
				if p.unknown { // a request may be on its way: the removal of the orphan looks for it
					m.orphans[i].add(driver.Hold{Name: h.Name, ID: h.ID, Shared: h.Shared})
				}
				p.unknown = false
			})
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	b := m.books[keyOf(h)]
	delete(m.books, keyOf(h))
	m.mu.Unlock()
	held := b != nil && b.granted
	if held && slices.Contains(lost, true) || !slices.Contains(found, true) {
		return driver.ErrLost
	}
	return nil
}
