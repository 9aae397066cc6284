package compose_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// A loss that a store pushes is passed on at once, whichever store it is.
func TestFallbackPassesLossesOn(t *testing.T) {
	for i := range 2 {
		bubble(t, func(t *testing.T) {
			p := newBacked(t)
			p.first.away.Store(i == 1)
			k := acquire(t, p.all)
			if err := p.on[i].Break(t.Context(), "x", k.Token()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !errors.Is(k.Err(), locker.ErrLost) {
				t.Errorf("the lock on store %d, which was broken: %v", 1+i, k.Err())
			}
			p.first.away.Store(false)
		})
	}
}

// What both stores are asked for is answered by the one that answers. That one of them does not have a ticket is no answer while
// the other is away, which may have it.
func TestFallbackAsksBoth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		away := func(first, second bool) { p.first.away.Store(first); p.second.away.Store(second) }
		breaks := func(token uint64) error { return p.all.Break(t.Context(), "x", token) }
		for i := range 2 {
			k, err := p.on[i].Acquire(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.on[i].Acquire(t.Context(), []string{"b", "a"}[i]); err != nil {
				t.Fatal(err)
			}
			away(i == 1, i == 0)
			if q, err := p.all.Inspect(t.Context(), "x"); err != nil || len(q.Tickets) != 1 || q.Tickets[0].Token != k.Token() {
				t.Errorf("while the other is away store %d shows %+v, %v", 1+i, q, err)
			}
			if err := breaks(1); err == nil || errors.Is(err, locker.ErrLost) {
				t.Errorf("break of what store %d lacks, while the other is away: %v", 1+i, err)
			}
		}
		away(true, true)
		if q, err := p.all.Inspect(t.Context(), "x"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("while both are away: %+v, %v", q, err)
		}
		if names, err := p.all.List(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("while both are away: %q, %v", names, err)
		}
		away(false, false)
		time.Sleep(2 * time.Second) // until it is noticed that the primary is back
		if names, err := p.all.List(t.Context()); err != nil || !slices.Equal(names, []string{"a", "b", "x"}) {
			t.Errorf("of both: %q, %v", names, err)
		}
		if err := breaks(1); !errors.Is(err, locker.ErrLost) {
			t.Errorf("break of what both lack: %v, want ErrLost", err)
		}
		for i := range 2 {
			q := p.queue(t, i, 1)
			if err := breaks(q.Tickets[0].Token); err != nil {
				t.Errorf("break of what store %d has: %v", 1+i, err)
			}
		}
	})
}
