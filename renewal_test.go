package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestRenewsEveryThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		time.Sleep(60*time.Second + time.Millisecond)
		if err := k.Err(); err != nil {
			t.Fatalf("lost while renewed: %v", err)
		}
		got := s.renewals()
		if len(got) != 20 {
			t.Fatalf("%d renewals in 60 s with a TTL of 9 s, want 20", len(got))
		}
		for i, at := range got {
			if d := at.Sub(begun); d != time.Duration(i+1)*3*time.Second {
				t.Errorf("renewal %d came after %v", i+1, d)
			}
		}
		release(t, k)
		time.Sleep(time.Minute)
		if n := len(s.renewals()); n != 20 {
			t.Errorf("%d renewals after release", n-20)
		}
	})
}

func TestRetriesUntilTheValidityEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := newStub(), &events{}
		s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
		l := locker.New(s, locker.WithObserver(seen.add), locker.WithSafetyMargin(time.Second))
		defer l.Close()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		<-k.Done()
		if d := time.Since(begun); d != 8*time.Second {
			t.Errorf("lost after %v, want exactly the TTL less the safety margin, 8s", d)
		}
		want(t, k.Err(), locker.ErrLost)
		if n := len(s.renewals()); n < 5 {
			t.Errorf("%d attempts to renew in 5 s, want more", n)
		}
		synctest.Wait()
		if n := len(seen.of(locker.EventLost)); n != 1 {
			t.Errorf("%d events of a loss, want 1", n)
		}
		if failed := seen.of(locker.EventRenewFailed); len(failed) == 0 || !errors.Is(failed[0].Err, errDown) {
			t.Errorf("events of failed renewals: %v", failed)
		}
		want(t, k.Release(context.Background()), locker.ErrLost)
	})
}

func TestRenewalThatHangsIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		hung := false
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			if !hung {
				hung = true
				<-ctx.Done()
				return ctx.Err()
			}
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		time.Sleep(30 * time.Second)
		if err := k.Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOutageShorterThanTheValidityIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		down := time.Now().Add(2 * time.Second)
		up := down.Add(5 * time.Second)
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			if now := time.Now(); now.After(down) && now.Before(up) {
				return errDown
			}
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		time.Sleep(time.Minute)
		if err := k.Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFixedLeaseEndsAtTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s, locker.WithSafetyMargin(0))
		other := locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(5*time.Second), locker.WithoutRenewal())
		next := acquire(t, other, "a")
		if d := time.Since(begun); d != 5*time.Second {
			t.Errorf("next grant after %v, want 5s", d)
		}
		want(t, k.Err(), locker.ErrLost)
		want(t, k.Release(context.Background()), locker.ErrLost)
		if next.Err() != nil || len(s.renewals()) != 0 {
			t.Errorf("next holder: %v; renewals: %d", next.Err(), len(s.renewals()))
		}
	})
}

func TestDefaultSafetyMarginEndsTheValidityBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		<-k.Done()
		if d := time.Since(begun); d != 9900*time.Millisecond {
			t.Errorf("valid for %v, want the TTL less 1 %%", d)
		}
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New(), locker.WithSafetyMargin(0))
		defer l.Close()
		ctx := context.Background()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(5*time.Second), locker.WithoutRenewal())
		time.Sleep(3 * time.Second)
		if err := k.Extend(ctx, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := k.Extend(ctx, time.Second); err != nil { // never shortens
			t.Fatal(err)
		}
		want(t, k.Extend(ctx, 0), locker.ErrInvalidOption)
		want(t, k.Extend(ctx, -time.Second), locker.ErrInvalidOption)
		<-k.Done()
		if d := time.Since(begun); d != 13*time.Second {
			t.Errorf("lease ended after %v, want 13s", d)
		}
		want(t, k.Extend(ctx, time.Second), locker.ErrLost)
		k = acquire(t, l, "a")
		release(t, k)
		want(t, k.Extend(ctx, time.Second), locker.ErrReleased)
	})
}

// A renewal on its way when the lock is released finds no ticket: that is no
// loss, and the lock is free.
func TestReleaseRacingARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := newStub(), &events{}
		proceed := make(chan struct{})
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			<-proceed
			return next(ctx, r)
		}
		l := locker.New(s, locker.WithObserver(seen.add))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		time.Sleep(4 * time.Second) // the renewal is under way
		release(t, k)
		close(proceed)
		synctest.Wait()
		want(t, k.Err(), locker.ErrReleased)
		if lost := seen.of(locker.EventLost); len(lost) != 0 {
			t.Errorf("false loss: %v", lost)
		}
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets left", n)
		}
	})
}

// The same when the renewal was made and only its answer is late.
func TestReleaseRacingTheAnswerToARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := newStub(), &events{}
		proceed := make(chan struct{})
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			err := next(ctx, r)
			<-proceed
			return err
		}
		l := locker.New(s, locker.WithObserver(seen.add))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		time.Sleep(4 * time.Second)
		release(t, k)
		close(proceed)
		time.Sleep(time.Minute)
		if n := len(seen.of(locker.EventLost)) + len(seen.of(locker.EventRenewed)); n != 0 {
			t.Errorf("%d events of renewals and losses after release", n)
		}
	})
}

// The validity counts from before the request, so a slow answer shortens it.
func TestSlowAnswerShortensTheValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			time.Sleep(3 * time.Second)
			return g, err
		}
		l := locker.New(s, locker.WithSafetyMargin(0))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(5*time.Second), locker.WithoutRenewal())
		begun := time.Now()
		<-k.Done()
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("valid for %v after an answer that took 3s of 5s", d)
		}
		// An answer later than the lease is no grant.
		_, err := l.TryAcquire(context.Background(), "b", locker.WithTTL(2*time.Second))
		want(t, err, locker.ErrUnavailable)
		if errors.Is(err, locker.ErrLost) {
			t.Errorf("%v: the lock was never held", err)
		}
		if n := s.queueLen(t, "b"); n != 0 {
			t.Errorf("%d tickets left", n)
		}
	})
}

// A process that was paused learns of the loss from Err before any timer has run.
func TestErrLooksAtTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		l := locker.New(sharing(), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Name == "b" && e.Kind == locker.EventLost {
				<-stuck // the goroutine that ends leases waits too
			}
		}))
		defer l.Close()
		defer close(stuck)
		k := acquire(t, l, "a", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
		acquire(t, l, "b", locker.WithTTL(time.Second), locker.WithoutRenewal())
		d := acquire(t, l, "d", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
		c := acquire(t, l, "c", locker.WithTTL(2*time.Second), locker.WithoutRenewal(), locker.WithOwner("me"))
		time.Sleep(3 * time.Second)
		want(t, k.Err(), locker.ErrLost)
		want(t, k.Release(context.Background()), locker.ErrLost)
		want(t, d.Release(context.Background()), locker.ErrLost) // Err was not called before
		again := acquire(t, l, "c", locker.WithOwner("me"))
		if again.Token() <= c.Token() {
			t.Error("an owner re-entered a lease that is over")
		}
		release(t, again)
	})
}

func TestLossPushedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		s := newStub()
		l := locker.New(s, locker.WithObserver(seen.add))
		operator := locker.New(s.Join())
		defer l.Close()
		defer operator.Close()
		ctx := context.Background()
		k := acquire(t, l, "a")
		work := k.Context(ctx)
		begun := time.Now()
		if err := operator.Break(ctx, "a", k.Token()); err != nil {
			t.Fatal(err)
		}
		<-work.Done()
		if time.Since(begun) != 0 {
			t.Errorf("notified after %v", time.Since(begun))
		}
		want(t, context.Cause(work), locker.ErrLost)
		want(t, operator.Break(ctx, "a", k.Token()), locker.ErrLost)
	})
}

// One goroutine serves a lock that is taken again and again, and ends soon after the
// last release.
func TestGoroutineOfTheScheduleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(newStub())
		t.Cleanup(func() { _ = l.Close() })
		for range 10 {
			release(t, acquire(t, l, "a"))
			synctest.Wait()
			if !l.Watches() {
				t.Fatal("the goroutine ended with the lock, and is started again for the next")
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if l.Watches() {
			t.Error("the goroutine runs on though nothing is held")
		}
	})
}

// A short lease is renewed in time though the goroutine sleeps until a long one is due.
func TestShortLeaseAfterALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		acquire(t, l, "long", locker.WithTTL(time.Hour))
		time.Sleep(5 * time.Second)
		short := acquire(t, l, "short", locker.WithTTL(300*time.Millisecond))
		time.Sleep(5 * time.Second)
		if err := short.Err(); err != nil {
			t.Error(err)
		}
	})
}

// Release at the very moment at which the validity ends is ErrLost, whether or not the
// schedule has noticed the end already, and whatever the store answers.
func TestReleaseAtTheEndOfTheValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			_ = next(ctx, h)
			return nil
		}
		l := locker.New(s)
		defer l.Close()
		for range 100 {
			k := acquire(t, l, "a", locker.WithTTL(time.Second), locker.WithoutRenewal())
			deadline := k.Deadline()
			time.Sleep(time.Until(deadline))
			want(t, k.Release(context.Background()), locker.ErrLost)
			time.Sleep(time.Second) // the ticket is removed when the store's lease is over
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
