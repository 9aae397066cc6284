package mutant

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	var broken *ticket
	var others []*ticket
	err := d.ask(ctx, func() error {
		q, err := d.s.queue(name)
		if err != nil {
			return err
		}
		defer q.settle()
		if d.s.has(BreakNothing) {
			return nil
		}
		i := slices.IndexFunc(q.tickets, func(t *ticket) bool {
			return t.token == token || d.s.has(BreakCuts) && uint32(t.token) == uint32(token) //nolint:gosec // that is the bug
		})
		if d.s.has(BreakExclusive) && i >= 0 && q.tickets[i].r.Shared || d.s.has(BreakHundred) && i >= 100 {
			i = -1
		}
		if i < 0 && d.s.has(BreakAnything) && len(q.tickets) > 0 {
			i = 0
		}
		if i < 0 {
			return driver.ErrLost
		}
		broken = q.tickets[i]
		q.remove(broken)
		q.stuck = !broken.held && d.s.has(BrokenBlocks)
		if d.s.has(BreakKeys) {
			d.s.left[name] = true
		}
		if broken.held {
			others = slices.Clone(q.tickets)
		}
		if d.s.has(TokensBackOnBreak) {
			d.s.last = token - 1
		}
		return nil
	})
	if d.s.has(BreakTellsAll) && broken != nil {
		for _, t := range others {
			if t.r.Shared && t.d.notifyLoss != nil {
				t.d.notifyLoss(t.r.Hold(t.token), errGone)
			}
		}
	}
	if d.s.has(BreakGuesses) && !errors.Is(err, driver.ErrLost) {
		err = nil
	}
	if d.s.has(BreakOwnSilent) && broken != nil && broken.d == d {
		return err
	}
	if broken != nil && broken.held && broken.d.notifyLoss != nil && !d.s.has(BreakNotPushed) && !d.s.has(BreakSilent) && !broken.d.isCut() {
		cause := errGone
		if d.s.has(BreakCause) {
			cause = errBroken
		}
		broken.d.notifyLoss(broken.r.Hold(broken.token), cause)
	}
	return err
}

func (d *Driver) isCut() bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.cut || d.drop
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) (tickets []driver.Ticket, err error) {
	err = d.ask(ctx, func() error {
		tickets = nil
		q, err := d.s.queue(name)
		if err != nil {
			return err
		}
		defer q.settle()
		if d.s.has(InspectKeys) && len(q.tickets) == 0 {
			d.s.left[name] = true
		}
		for _, t := range q.tickets {
			tickets = append(tickets, d.s.show(t))
		}
		return nil
	})
	if d.s.has(SilentOutage) && !errors.Is(err, driver.ErrClosed) {
		err = nil
	}
	if d.s.has(Unordered) {
		slices.Reverse(tickets)
	}
	switch d.s.bug {
	case ShowsTen:
		tickets = tickets[:min(len(tickets), 10)]
	case ShowsHundred:
		tickets = tickets[:min(len(tickets), 100)]
	}
	return tickets, err
}

func (s *Store) show(t *ticket) driver.Ticket {
	v := t.r.Ticket(t.token)
	v.Held, v.Since = t.held, t.since
	if t.held {
		v.Remaining = time.Until(t.until)
	}
	switch s.bug {
	case NoNotes:
		v.Note = ""
	case NoneOfReaders:
		if v.Shared {
			v.Remaining = 0
		}
	case CutsOfReaders:
		if v.Shared {
			v.Owner, _, _ = strings.Cut(v.Owner, "\x00")
			v.Note, _, _ = strings.Cut(v.Note, "\x00")
		}
	case CutsTexts:
		v.Owner, _, _ = strings.Cut(v.Owner, "\x00")
		v.Note, _, _ = strings.Cut(v.Note, "\x00")
	case NoRemaining:
		v.Remaining = 0
	case RemainingStays:
		v.Remaining = min(v.Remaining, time.Until(t.since.Add(t.r.TTL)))
	case WrongSince:
		v.Since = time.Unix(1, 0)
	}
	return v
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) (names []string, err error) {
	err = d.ask(ctx, func() error {
		for _, q := range d.s.queues {
			q.settle()
		}
		for name, q := range d.s.queues {
			if d.s.has(ListsHundred) && len(names) == 100 {
				break
			}
			if d.s.has(ListsExclusive) && !slices.ContainsFunc(q.tickets, func(t *ticket) bool { return !t.r.Shared }) {
				continue
			}
			names = append(names, name)
			if d.s.has(ListsTickets) {
				names = append(names, slices.Repeat([]string{name}, max(0, len(q.tickets)-1))...)
			}
		}
		if d.s.has(ListsIdle) {
			for name := range d.s.idleAt {
				names = append(names, name)
			}
		}
		if d.s.has(ListsLapsed) {
			for _, t := range d.s.lapsed {
				names = append(names, t.r.Name)
			}
		}
		return nil
	})
	return names, err
}
