package locker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// blocking is an observer that blocks at the first event of a kind, until it is released.
func blocking(kind locker.EventKind) (f func(context.Context, locker.Event), blocked, release chan struct{}) {
	blocked, release = make(chan struct{}), make(chan struct{})
	return func(_ context.Context, e locker.Event) {
		if e.Kind != kind {
			return
		}
		select {
		case <-blocked:
		default:
			close(blocked)
		}
		<-release
	}, blocked, release
}

// An observer that blocks hides no loss: leases that end together have all ended before
// anybody is told of one.
func TestSlowObserverHidesNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer, blocked, release := blocking(locker.EventLost)
		l := locker.New(newStub(), locker.WithObserver(observer))
		defer l.Close()
		defer close(release)
		var locks []*locker.Lock
		for _, name := range []string{"a", "b", "c"} {
			locks = append(locks, acquire(t, l, name, locker.WithTTL(2*time.Second), locker.WithoutRenewal()))
		}
		<-blocked
		synctest.Wait()
		for _, k := range locks {
			select {
			case <-k.Done():
			default:
				t.Errorf("%s: Done is not closed", k.Name())
			}
			want(t, k.Err(), locker.ErrLost)
			want(t, k.Release(context.Background()), locker.ErrLost)
		}
	})
}

// While an observer blocks, leases are renewed, lost, released and taken.
func TestSlowObserverHoldsNothingUp(t *testing.T) {
	for _, kind := range []locker.EventKind{locker.EventRenewed, locker.EventLost} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				observer, blocked, release := blocking(kind)
				l := locker.New(newStub(), locker.WithObserver(observer))
				defer l.Close()
				defer close(release)
				renewed := acquire(t, l, "renewed", locker.WithTTL(3*time.Second))
				beside := acquire(t, l, "in the same batch", locker.WithTTL(3*time.Second))
				fixed := acquire(t, l, "fixed", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
				<-blocked
				time.Sleep(time.Minute)
				if err := errors.Join(renewed.Err(), beside.Err()); err != nil {
					t.Errorf("the renewed locks: %v", err)
				}
				want(t, fixed.Err(), locker.ErrLost)
				begun := time.Now()
				k := acquire(t, l, "other", locker.WithTTL(3*time.Second))
				if err := errors.Join(k.Release(context.Background()), renewed.Release(context.Background())); err != nil {
					t.Error(err)
				}
				if d := time.Since(begun); d > 0 {
					t.Errorf("an acquisition and two releases took %v", d)
				}
			})
		})
	}
}

// Events of renewals that a slow observer has not got yet do not pile up.
func TestSlowObserverGetsTheLastRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer, blocked, release := blocking(locker.EventRenewed)
		var seen events
		l := locker.New(newStub(), locker.WithObserver(observer), locker.WithObserver(seen.add))
		k := acquire(t, l, "a", locker.WithTTL(3*time.Second))
		<-blocked
		time.Sleep(time.Hour)
		close(release)
		if err := k.Release(context.Background()); err != nil {
			t.Error(err)
		}
		_ = l.Close()
		if n := len(seen.of(locker.EventRenewed)); n != 2 {
			t.Errorf("%d events of renewals, want the one that was blocked and the last", n)
		}
		if n := len(seen.of(locker.EventReleased)); n != 1 {
			t.Errorf("%d events of the release", n)
		}
	})
}

// The second of two Closes returns when the first is done.
func TestSecondCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		acquire(t, l, "a")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				time.Sleep(2 * time.Second)
				return next(ctx, h)
			}
		})
		go func() { _ = l.Close() }()
		synctest.Wait()
		begun := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("the second Close returned after %v, the first takes 2s", d)
		}
	})
}

// A second Close waits until the first has notified the observers of what it has released.
func TestSecondCloseWaitsForEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Bool
		l := locker.New(memory.New(), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventReleased {
				time.Sleep(time.Second)
				notified.Store(true)
			}
		}))
		acquire(t, l, "a")
		first := make(chan struct{})
		go func() { _ = l.Close(); close(first) }()
		time.Sleep(time.Millisecond)
		want(t, l.Close(), nil)
		if !notified.Load() {
			t.Error("the second Close has returned before the observers were notified")
		}
		<-first
	})
}

// An observer that panics in Release of a group, or in Close, panics in the caller.
func TestPanicInAGroup(t *testing.T) {
	for name, end := range map[string]func(l *locker.Client, k *locker.Lock){
		"release": func(_ *locker.Client, k *locker.Lock) { _ = k.Release(context.Background()) },
		"close":   func(l *locker.Client, _ *locker.Lock) { _ = l.Close() }, // and of the driver
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub()
				l, armed := panicky(s, locker.EventReleased)
				defer l.Close()
				other := s.Driver.Join()
				defer other.Close()
				k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b", "c"})
				if err != nil {
					t.Fatal(err)
				}
				armed.Store(2)
				if !caught(func() { end(l, k) }) {
					t.Error("no panic")
				}
				for _, name := range []string{"a", "b", "c"} {
					if queue, err := other.Inspect(t.Context(), name); err != nil || len(queue) != 0 {
						t.Errorf("%v are left of %q (%v)", queue, name, err)
					}
				}
			})
		})
	}
}

// AcquireAll keeps its limit although the way to the store is lost after the first name,
// and a limit that is used up is no try without a limit.
func TestLimitOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		other := acquire(t, l, "b")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		begun := time.Now()
		_, err := locker.AcquireAll(context.Background(), l, []string{"a", "b"}, locker.WithWait(2*time.Second))
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d > 2100*time.Millisecond {
			t.Errorf("returned after %v of 2s", d)
		}
		s.set(func(s *stub) { s.release = nil })
		time.Sleep(10 * time.Second)
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets of the first name are left", n)
		}
		release(t, other)
	})
}

// A wait limit that the first name has used up exactly is no try without a limit for the next.
func TestLimitOfAGroupThatIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			if r.Name == "a" {
				time.Sleep(2 * time.Second)
				return next(context.WithoutCancel(ctx), r)
			}
			<-ctx.Done()
			return driver.Grant{}, ctx.Err()
		}
		begun := time.Now()
		_, err := locker.AcquireAll(context.Background(), l, []string{"a", "b"}, locker.WithWait(2*time.Second))
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d > 2100*time.Millisecond {
			t.Errorf("returned after %v of 2s", d)
		}
	})
}
