package compose_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// shortens is a store that notes which leases are to be shortened.
type shortens struct {
	*flaky
	err   error
	holds []driver.Hold
}

func newShortens() *shortens { return &shortens{flaky: &flaky{Driver: memory.New()}} }

func (s *shortens) Shorten(_ context.Context, h driver.Hold, d time.Duration) error {
	if d != time.Second {
		return errors.New("another duration")
	}
	s.holds = append(s.holds, h)
	return s.err
}

// A lease is shortened on every store that has the ticket, and there by the token of that store.
func TestShorten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newShortens(), newShortens()
		shorten := func(d driver.Driver) error {
			t.Helper()
			a.holds, b.holds = nil, nil
			r := driver.Request{Name: "x", ID: "1", TTL: time.Minute, MinHold: 10 * time.Second}
			g, err := d.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			err = d.(driver.Shortener).Shorten(t.Context(), r.Hold(g.Token), time.Second)
			for _, s := range []*shortens{a, b} {
				q, _ := s.Driver.Inspect(t.Context(), "x")
				switch {
				case len(s.holds) != len(q):
					t.Errorf("shortened %v of %v", s.holds, q)
				case len(q) > 0 && (s.holds[0].ID != "1" || s.holds[0].Token != q[0].Token):
					t.Errorf("shortened %v of %v", s.holds, q)
				}
			}
			if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
				t.Error(err)
			}
			return err
		}
		if err := shorten(compose.All(a, compose.TokenBase(b, 1<<50))); err != nil {
			t.Errorf("all: %v", err)
		}
		fallback := compose.Fallback(a, b)
		if err := shorten(fallback); err != nil || len(a.holds) != 1 {
			t.Errorf("fallback: %v, on the primary %v", err, a.holds)
		}
		a.away.Store(true)
		if err := shorten(fallback); err != nil || len(b.holds) != 1 {
			t.Errorf("degraded: %v, on the secondary %v", err, b.holds)
		}
		a.away.Store(false)

		if err := shorten(compose.All(a, compose.TokenBase(memory.New(), 1))); len(a.holds) != 1 {
			t.Errorf("beside a store that may not be able to: %v, shortened %v", err, a.holds)
		}
		a.err = driver.ErrLost
		if err := shorten(compose.All(a, b)); !errors.Is(err, driver.ErrLost) {
			t.Errorf("lost on one: %v", err)
		}
		// What one store has not answered is asked for again.
		for _, b.err = range []error{nil, driver.ErrLost, driver.ErrUnsupported} {
			a.err = errDown
			err := shorten(compose.All(a, b))
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("no answer of one, %v of the other: %v", b.err, err)
			}
		}
		if err := errors.Join(fallback.Close(), a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
}

// sessions is a store on which a lease lasts no longer than a session of ten seconds.
type sessions struct{ *memory.Driver }

func (s sessions) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := s.Driver.Acquire(ctx, r)
	g.TTL = 10 * time.Second
	return g, err
}

// A lock that is extended is trusted for no longer than the leases of the stores that have it.
func TestExtendOnASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, d := range map[string]driver.Driver{
			"All":       compose.All(memory.New(), sessions{memory.New()}),
			"Fallback":  compose.Fallback(sessions{memory.New()}, memory.New()),
			"TokenBase": compose.TokenBase(sessions{memory.New()}, 1<<50),
		} {
			l := locker.New(d)
			k, err := l.Acquire(t.Context(), "x", locker.WithTTL(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Extend(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			if left := time.Until(k.Deadline()); left > 10*time.Second || left < 9*time.Second {
				t.Errorf("%s: trusted for %v", name, left)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
