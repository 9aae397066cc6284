package coord_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/coord"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/memorytest"
)

var errOwn = errors.New("of the function")

// Instances whose clocks differ by up to ten seconds start a job every minute: it
// runs once a minute, whoever is first, and although each closes its Locker at once.
func TestOnceAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		begun := time.Now()
		var runs []time.Duration
		for minute := range 5 {
			for instance := range 4 {
				offset := time.Duration((instance+minute)%4) * 3 * time.Second
				time.AfterFunc(time.Duration(minute)*time.Minute+offset, func() {
					l, _ := b.Join()
					defer l.Close()
					_, err := coord.Once(context.Background(), l, "job", 30*time.Second, func(context.Context) error {
						runs = append(runs, time.Since(begun))
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(runs) != 5 {
			t.Fatalf("runs at %v, want five", runs)
		}
		for minute, at := range runs {
			if at != time.Duration(minute)*time.Minute {
				t.Errorf("run %d at %v", minute, at)
			}
		}
	})
}

func TestOnceKeepsThePeriod(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   func(s *memorytest.Store) error
		want error
		free time.Duration // when somebody else may run
	}{
		{"success", func(*memorytest.Store) error { return nil }, nil, time.Minute},
		{"failure", func(*memorytest.Store) error { return errOwn }, errOwn, time.Minute},
		{"nested refusal", func(*memorytest.Store) error { return locker.ErrNotAcquired }, locker.ErrNotAcquired, time.Minute},
		{"long run", func(*memorytest.Store) error { time.Sleep(time.Hour); return nil }, nil, time.Hour},
		{"death", func(s *memorytest.Store) error { s.Away.Store(true); return errOwn }, errOwn, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memorytest.New(t)
				l, s := b.Join()
				other, _ := b.Join()
				again := func() bool {
					ran, err := coord.Once(t.Context(), other, "job", time.Minute, func(context.Context) error { return nil })
					if err != nil {
						t.Error(err)
					}
					return ran
				}
				go func() {
					time.Sleep(c.free - time.Millisecond)
					if again() {
						t.Error("another run within the period")
					}
				}()
				time.Sleep(time.Nanosecond)
				ran, err := coord.Once(t.Context(), l, "job", time.Minute, func(context.Context) error { return c.fn(s) })
				if !ran || !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("ran: %t, %v", ran, err)
				}
				if left := c.free - time.Minute; left == 0 {
					time.Sleep(time.Minute)
				}
				if !again() {
					t.Error("no run after the period")
				}
			})
		})
	}
}

func TestOnceRefuses(t *testing.T) {
	l, s := memorytest.New(t).Join()
	fn := func(context.Context) error { t.Error("the function has run"); return nil }
	s.Away.Store(true)
	for _, c := range []struct {
		what   string
		l      locker.Locker
		name   string
		period time.Duration
		fn     func(context.Context) error
		want   error
	}{
		{"Locker", nil, "a", time.Minute, fn, locker.ErrInvalidOption},
		{"name", l, "", time.Minute, fn, locker.ErrInvalidName},
		{"period", l, "a", 30, fn, locker.ErrInvalidOption},
		{"function", l, "a", time.Minute, nil, locker.ErrInvalidOption},
		{"outage", l, "a", time.Minute, fn, locker.ErrUnavailable},
	} {
		if ran, err := coord.Once(t.Context(), c.l, c.name, c.period, c.fn); ran || !errors.Is(err, c.want) {
			t.Errorf("%s: ran %t, %v", c.what, ran, err)
		}
	}
}

// A context that ended because another lock was not acquired is no period that somebody else
// has taken.
func TestOnceUnderAForeignCause(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(locker.ErrNotAcquired)
	ran, err := coord.Once(ctx, l, "job", time.Minute, func(context.Context) error { return nil })
	if ran || !errors.Is(err, context.Canceled) || errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("ran: %v, %v", ran, err)
	}
}
