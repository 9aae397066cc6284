package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// TestReleasedWhenAcquireReturns: the ticket of a wait whose context ends while observers hear of it is gone when Acquire returns,
// if the store answers soon.
func TestReleasedWhenAcquireReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		holder := locker.New(s.Driver.Join())
		defer holder.Close()
		acquire(t, holder, "a")
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			time.Sleep(5 * time.Millisecond)
			return next(ctx, h)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l := locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				cancel()
				time.Sleep(time.Millisecond)
			}
		}))
		defer l.Close()
		_, err := l.Acquire(ctx, "a")
		want(t, err, context.Canceled)
		if n := s.queueLen(t, "a"); n != 1 {
			t.Errorf("%d tickets when Acquire has returned, want the holder's", n)
		}
	})
}

// TestEndedWhenExtendReturns: the contexts of a lock have ended when its Extend returns ErrLost.
func TestEndedWhenExtendReturns(t *testing.T) {
	red := 0
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			l := locker.New(s)
			defer l.Close()
			k := acquire(t, l, "a")
			work := k.Context(t.Context())
			s.set(func(s *stub) {
				s.renew = func(context.Context, driver.Renewal, renewFunc) error { return driver.ErrLost }
			})
			want(t, k.Extend(t.Context(), time.Hour), locker.ErrLost)
			if work.Err() == nil {
				red++
			}
		})
	}
	if red > 0 {
		t.Errorf("%d of 50: the context is alive when Extend has returned ErrLost", red)
	}
}

// TestExtendOfALargeGroupIsBounded: Extend of many names takes no longer than that of one while the store does not answer.
func TestExtendOfALargeGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		var names []string
		for i := range 65 {
			names = append(names, string(rune('a'+i)))
		}
		k, err := locker.AcquireAll(t.Context(), l, names, locker.WithTTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		s.set(func(s *stub) {
			s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		begun := time.Now()
		want(t, k.Extend(t.Context(), 2*time.Hour), locker.ErrUnavailable)
		if d := time.Since(begun); d > locker.DefaultAnswerTimeout {
			t.Errorf("returned after %v", d)
		}
	})
}
