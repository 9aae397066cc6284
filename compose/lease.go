package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// hold is the hold of a ticket with the part's token.
func (m *AllDriver) hold(i int, h driver.Hold) driver.Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[keyOf(h)]
	switch {
	case b != nil:
		h.Token = b.tokens[i]
	case i != m.authority:
		h.Token = 0
	}
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

// Release implements driver.Driver. It is done when all parts have confirmed it; those that
// have are not asked again. A part that was never asked for the ticket is not asked to remove
// it: it may be away while the others answer. The core checks again for a late request only
// if no store has the ticket. If some have it, a late request may still bring it to another
// one: it becomes an orphan there.
func (m *AllDriver) Release(ctx context.Context, h driver.Hold) error {
	lost, found := make([]bool, len(m.parts)), make([]bool, len(m.parts))
	err := m.each(func(i int, d driver.Driver) error {
		if !m.wasAsked(i, keyOf(h)) {
			return nil
		}
		if m.wasReleased(i, keyOf(h)) {
			found[i] = true
			return nil
		}
		err := d.Release(ctx, m.hold(i, h))
		switch {
		case err == nil:
			found[i] = true
			m.setReleased(i, keyOf(h))
		case errors.Is(err, driver.ErrLost):
			lost[i] = true
			if m.mayComeLate(i, keyOf(h)) {
				m.orphans[i].add(driver.Hold{Name: h.Name, ID: h.ID, Shared: h.Shared})
			}
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

// wasAsked reports whether a store may have a ticket. All may have one that has no book.
func (m *AllDriver) wasAsked(i int, k key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[k]
	return b == nil || b.asked[i]
}

func (m *AllDriver) wasReleased(i int, k key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[k]
	return b != nil && b.released[i]
}

func (m *AllDriver) setReleased(i int, k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.books[k]; b != nil {
		b.released[i] = true
	}
}

// mayComeLate reports, once, whether a request for the ticket may be on its way to a store
// that does not have it.
func (m *AllDriver) mayComeLate(i int, k key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[k]
	if b == nil || !b.unknown[i] {
		return false
	}
	b.unknown[i] = false
	return true
}
