package locker_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// A slow observer hears that a call waits until its wait limit has passed, and the grant is
// late. The store has queued the ticket, so the call was not acquired in time; the store
// was not away.
func TestLimitPassesWithALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
			asked := time.Now()
			r.Joined()
			<-ctx.Done() // and it was granted at the same time
			return driver.Grant{Token: 1, Asked: asked}, nil
		}
		s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error { return ctx.Err() }
		c := locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				time.Sleep(20 * time.Second)
			}
		}))
		defer c.Close()
		_, err := c.Acquire(t.Context(), "a", locker.WithTTL(10*time.Second), locker.WithWait(time.Second))
		if !errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the wait limit has passed: %v", err)
		}
	})
}

// A group whose wait limit has passed when a member is granted does not ask for the next
// name, neither as a try nor without a limit.
func TestGroupAfterItsLimit(t *testing.T) {
	for _, takes := range []time.Duration{2 * time.Second, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				if r.Name == "b" {
					t.Errorf("after %v the store is asked for b", takes)
				}
				time.Sleep(takes)
				return next(context.WithoutCancel(ctx), r)
			}
			l := locker.New(s)
			defer l.Close()
			begun := time.Now()
			_, err := locker.AcquireAll(context.Background(), l, []string{"a", "b"}, locker.WithWait(2*time.Second))
			want(t, err, locker.ErrNotAcquired)
			if d := time.Since(begun); d != takes {
				t.Errorf("returned after %v, want %v", d, takes)
			}
		})
	}
}

// A re-entry that fails, and has the last handle by then, leaves the release to the
// background if the store does not answer.
func TestReentryThatFailsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		outer := acquire(t, l, "a", locker.WithTTL(20*time.Second), locker.WithoutRenewal(), locker.WithOwner("me"))
		s.set(func(s *stub) {
			s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
			s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		time.AfterFunc(time.Second/2, func() { _ = outer.Release(context.Background()) })
		begun := time.Now()
		_, err := l.Acquire(context.Background(), "a", locker.WithOwner("me"), locker.WithTTL(time.Minute), locker.WithWait(time.Second))
		want(t, err, locker.ErrUnavailable)
		if d := time.Since(begun); d > 1100*time.Millisecond {
			t.Errorf("returned after %v, the limit is 1s", d)
		}
	})
}

// grantedAfter answers an acquisition d after the store has granted it.
func grantedAfter(d time.Duration) func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
	return func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		g, err := next(ctx, r)
		time.Sleep(d)
		return g, err
	}
}

// A grant whose lease is nearly over when it comes is renewed before its caller gets it, since
// the answer to a renewal would come too late afterwards.
func TestGrantThatIsNearlyOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = grantedAfter(4900 * time.Millisecond)
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			time.Sleep(60 * time.Millisecond)
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(5*time.Second))
		time.Sleep(time.Second)
		if err := k.Err(); err != nil {
			t.Errorf("a second after the grant: %v", err)
		}
		release(t, k)
	})
}

// A grant that is nearly over is given as it came if its renewal fails, or is not answered in time: the
// schedule renews it again.
func TestGrantThatIsNearlyOverIsNotRenewed(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			s.acquire = grantedAfter(4500 * time.Millisecond)
			first := true
			s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
				if !first {
					return next(ctx, r)
				}
				first = false
				if hangs {
					<-ctx.Done()
					return ctx.Err()
				}
				return driver.Unavailable(errRefused)
			}
			l := locker.New(s)
			defer l.Close()
			k := acquire(t, l, "a", locker.WithTTL(5*time.Second))
			time.Sleep(time.Second)
			release(t, k)
		})
	}
}

// The renewal of a short lease is lost: the caller gets the grant as it came while it is valid, and otherwise the answer to
// another renewal.
func TestShortGrantWhoseRenewalIsLost(t *testing.T) {
	for _, left := range []time.Duration{10 * time.Millisecond, 45 * time.Millisecond, 55 * time.Millisecond, 100 * time.Millisecond, 140 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const ttl = 440 * time.Millisecond
			s := newStub()
			margin := ttl - validity(t, ttl)
			s.acquire = grantedAfter(ttl - margin - left)
			first := true
			s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
				if first {
					first = false
					<-ctx.Done()
					time.Sleep(20 * time.Millisecond) // a driver may take so long to return
					return ctx.Err()
				}
				return next(ctx, r)
			}
			l := locker.New(s)
			defer l.Close()
			begun := time.Now()
			k, err := l.Acquire(t.Context(), "a", locker.WithTTL(ttl))
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%v were left, and the call took %v: %v", left, took, err)
			}
			if err != nil {
				t.Fatalf("%v were left: %v", left, err)
			}
			time.Sleep(time.Second)
			release(t, k)
		})
	}
}

// Answers take longer than the least that a renewal may take: no caller gets a lock that is sure to be lost.
func TestShortGrantInASlowNetwork(t *testing.T) {
	for _, left := range []time.Duration{10 * time.Millisecond, 45 * time.Millisecond, 55 * time.Millisecond, 100 * time.Millisecond, 140 * time.Millisecond, 190 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const ttl = 600 * time.Millisecond
			s := newStub()
			margin := ttl - validity(t, ttl)
			late := grantedAfter(ttl - margin - left)
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				s.acquire = nil // the next one is not late
				return late(ctx, r, next)
			}
			s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
				if !retry.Sleep(ctx, 60*time.Millisecond, nil) {
					return ctx.Err()
				}
				return next(ctx, r)
			}
			l := locker.New(s)
			defer l.Close()
			k, err := l.Acquire(t.Context(), "a", locker.WithTTL(ttl))
			if err != nil {
				t.Fatalf("%v were left: %v", left, err)
			}
			time.Sleep(2 * time.Second)
			if err := k.Err(); err != nil {
				t.Errorf("%v were left: %v", left, err)
			}
			release(t, k)
		})
	}
}

// validity is how long a lease is valid that was just granted.
func validity(t *testing.T, ttl time.Duration) time.Duration {
	t.Helper()
	l := locker.New(newStub())
	defer l.Close()
	k := acquire(t, l, "a", locker.WithTTL(ttl), locker.WithoutRenewal())
	defer release(t, k)
	return time.Until(k.Deadline())
}

// When a call has ended before its grant comes, no renewal is sent: the caller gets the grant as it came while it is valid,
// and the reason of the end otherwise.
func TestNoRenewalForACallThatHasEnded(t *testing.T) {
	for _, late := range []time.Duration{4900 * time.Millisecond, 6 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			ctx, cancel := context.WithCancel(t.Context())
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				g, err := next(context.WithoutCancel(ctx), r)
				time.Sleep(late)
				cancel()
				return g, err
			}
			var returned atomic.Bool
			s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
				if !returned.Load() {
					t.Error("a renewal was sent")
				}
				return next(ctx, r)
			}
			l := locker.New(s)
			defer l.Close()
			k, err := l.Acquire(ctx, "a", locker.WithTTL(5*time.Second))
			returned.Store(true)
			if late > 5*time.Second {
				want(t, err, context.Canceled)
				return
			}
			want(t, err, nil)
			release(t, k)
		})
	}
}

// The longest TTL is not nearly over when its grant comes.
func TestLongestGrantIsNotRenewed(t *testing.T) {
	s := newStub()
	s.renew = func(context.Context, driver.Renewal, renewFunc) error {
		t.Error("renewed")
		return nil
	}
	l := locker.New(s)
	defer l.Close()
	release(t, acquire(t, l, "a", locker.WithTTL(math.MaxInt64), locker.WithoutRenewal()))
}

// If a lease ends while its renewal before the hand-over is not answered, the store gets the usual time for an answer.
func TestGrantThatIsOverMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = grantedAfter(45 * time.Millisecond)
		s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
			select {
			case <-time.After(60 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		l := locker.New(s)
		defer l.Close()
		_, err := l.Acquire(t.Context(), "a", locker.WithTTL(50*time.Millisecond), locker.WithWait(time.Second))
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A provisional lease that is shorter than the minimum hold, or that is over soon because of its safety margin, is not
// given as it came. So its renewal is not given up while it lasts: the store gets the usual time for an answer.
func TestProvisionalLeaseThatIsAClaim(t *testing.T) {
	for _, margin := range []time.Duration{100 * time.Millisecond, 800 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) { testClaim(t, margin) })
	}
}

func testClaim(t *testing.T, margin time.Duration) {
	s := newStub()
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		g, err := next(ctx, r)
		g.Claim = time.Second
		return g, err
	}
	s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
		select {
		case <-time.After(2 * time.Second):
			return next(ctx, r)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l := locker.New(s, locker.WithSafetyMargin(margin))
	defer l.Close()
	opts := []locker.Option{locker.WithTTL(10 * time.Second)}
	if margin < time.Second/3 {
		opts = append(opts, locker.WithMinHold(10*time.Second))
	}
	k := acquire(t, l, "a", opts...)
	time.Sleep(3 * time.Second)
	if k.Err() != nil {
		t.Error(k.Err())
	}
}
