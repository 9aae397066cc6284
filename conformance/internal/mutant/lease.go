package mutant

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.askLate(ctx, func() error { return d.renew(h, ttl, false) })
}

func (d *Driver) renew(h driver.Hold, ttl time.Duration, batch bool) error {
	s := d.s
	q, err := s.queue(h.Name)
	if err != nil {
		return err
	}
	defer q.settle()
	t := q.find(h)
	switch {
	case s.has(BreakNotPushed) && t == nil:
		return nil
	case s.has(RenewAnybody) && t == nil && len(q.tickets) > 0:
		t = q.tickets[0]
	case s.has(RenewRevives) && t == nil:
		t = &ticket{d: d, r: driver.Request{Name: h.Name, ID: h.ID, Shared: h.Shared}, token: h.Token, held: true, done: make(chan struct{})}
		q.tickets = append([]*ticket{t}, q.tickets...)
	}
	if t == nil {
		t = s.revive(q, h)
	}
	if t == nil || !t.held && !s.has(RenewWaiter) && !(s.has(BatchRenewsWaiter) && batch) && !(s.has(ReaderWaits) && t.r.Shared) {
		return driver.ErrLost
	}
	if s.has(ReadersRenewed) && t.r.Shared {
		ttl = ttl * 6 / 10
	}
	switch s.bug {
	case RenewSeconds:
		ttl = max(ttl.Truncate(time.Second), time.Second)
	case RenewWraps:
		ttl %= 1 << 32 * time.Millisecond
	}
	until := time.Now().Add(s.lease(ttl))
	switch s.bug {
	case RenewKeys:
		s.left[h.Name] = true
	case RenewedNotes:
		t.r.Note = ""
	case SinceMoves:
		t.since = time.Now()
	}
	switch {
	case s.has(RenewNothing):
		return nil
	case s.has(RenewAddsUp):
		t.until = t.until.Add(ttl)
	case until.After(t.until) || s.has(RenewShortens) || s.has(BatchShortens) && batch || s.has(ReaderShortened) && t.r.Shared:
		t.until = until
	}
	return nil
}

// revive brings an expired ticket back, with the bugs that do.
func (s *Store) revive(q *queue, h driver.Hold) *ticket {
	t := s.lapsed[h.ID]
	if t == nil || s.has(ListsLapsed) || s.has(LapsedKeysStay) || s.has(DeadKeysStay) {
		return nil
	}
	delete(s.lapsed, h.ID)
	q.tickets = append([]*ticket{t}, q.tickets...)
	return t
}

// RenewAll implements driver.BatchRenewer.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	err := d.ask(ctx, func() error {
		answers := make([]error, len(rs))
		for i, r := range rs {
			if d.s.has(BatchHundred) && i == 100 {
				break
			}
			answers[i] = d.renew(r.Hold, d.s.batchTTL(rs, i), true)
			if d.s.has(BatchEndsAtLoss) && answers[i] != nil {
				break
			}
		}
		errs = answers
		return nil //nolint:nilerr // each renewal has an answer of its own
	})
	for i := range errs {
		if err != nil {
			errs[i] = err
		}
	}
	if d.s.has(BatchReversed) {
		slices.Reverse(errs)
	}
	return errs
}

// batchTTL is for how long renewal i of a batch is.
func (s *Store) batchTTL(rs []driver.Renewal, i int) time.Duration {
	switch s.bug {
	case BatchOneTTL:
		i = 0
	case BatchLongest:
		return slices.MaxFunc(rs, func(a, b driver.Renewal) int { return cmp.Compare(a.TTL, b.TTL) }).TTL
	}
	return rs[i].TTL
}

// Shorten implements driver.Shortener.
func (d *Driver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	s := d.s
	err := d.ask(ctx, func() error {
		q, err := s.queue(h.Name)
		if err != nil {
			return err
		}
		defer q.settle()
		t := q.find(h)
		if t == nil && s.has(ShortensAnybody) && len(q.tickets) > 0 {
			t = q.tickets[0]
		}
		if t == nil && s.has(ShortensUnknown) || t != nil && (s.has(ShortensWaiter) && !t.held || s.has(ShortensNoReader) && t.r.Shared) {
			return nil
		}
		if t == nil || !t.held {
			return driver.ErrLost
		}
		if s.has(ShortensTooMuch) {
			left /= 4
		}
		if until := time.Now().Add(left); (until.Before(t.until) || s.has(ShortenLengthens)) && !s.has(ShortensNothing) {
			t.until = until
		}
		return nil
	})
	if s.has(ShortenGuesses) && err != nil {
		return driver.ErrLost
	}
	return err
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if d.s.has(ForgetsRelease) {
		return d.forgetRelease(ctx, h)
	}
	return d.askLate(ctx, func() error { return d.release(h) })
}

// forgetRelease asks once for each ticket.
func (d *Driver) forgetRelease(ctx context.Context, h driver.Hold) error {
	d.s.mu.Lock()
	forgot := d.forgot[h.ID]
	d.s.mu.Unlock()
	if forgot {
		return driver.ErrLost
	}
	err := d.ask(ctx, func() error { return d.release(h) })
	if err != nil && !errors.Is(err, driver.ErrLost) {
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		if d.forgot == nil {
			d.forgot = make(map[string]bool)
		}
		d.forgot[h.ID] = true
		if q := d.s.queues[d.s.key(h.Name)]; q != nil {
			for _, t := range q.tickets {
				if t.r.ID == h.ID {
					t.touched = t.touched.Add(time.Hour) // it lives as long as the process does
				}
			}
		}
	}
	return err
}

func (d *Driver) release(h driver.Hold) error {
	s := d.s
	q, err := s.queue(h.Name)
	if err != nil {
		return err
	}
	delete(s.lapsed, h.ID)
	t := q.find(h)
	if s.has(ReleaseAnybody) && t == nil && len(q.tickets) > 0 {
		t = q.tickets[0]
	}
	switch {
	case t == nil,
		s.has(ReleaseByToken) && h.Token == 0,
		s.has(ReleaseHeldOnly) && !t.held:
		q.settle()
		return driver.ErrLost
	case s.has(ReleaseNothing):
		return nil
	}
	if s.has(HoldKeys) && t.r.MinHold > 0 {
		s.left[h.Name] = true
	}
	q.remove(t)
	q.stuck = !t.held && s.has(NoSettleOnCancel)
	q.settle()
	return nil
}
