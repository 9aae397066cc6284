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

func TestWithoutReentry(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	ctx := context.Background()
	k := acquire(t, l, "a", locker.WithOwner("me"))
	for _, ctx := range []context.Context{ctx, k.Context(ctx)} {
		_, err := l.TryAcquire(ctx, "a", locker.WithOwner("me"), locker.WithoutReentry())
		want(t, err, locker.ErrNotAcquired)
	}
	_, err := l.TryAcquire(k.Context(ctx), "a", locker.WithoutReentry())
	want(t, err, locker.ErrNotAcquired)
	again, err := l.TryAcquire(k.Context(ctx), "a")
	if err != nil {
		t.Fatal(err)
	}
	release(t, again)
	release(t, k)
}

func TestReentryByContext(t *testing.T) {
	s := newStub()
	l, other := locker.New(s), locker.New(s.Join())
	defer l.Close()
	defer other.Close()
	ctx := context.Background()
	k := acquire(t, l, "a")
	inside := k.Context(ctx)

	k2, err := l.Acquire(inside, "a")
	if err != nil {
		t.Fatal(err)
	}
	if k2.Token() != k.Token() || s.queueLen(t, "a") != 1 {
		t.Errorf("re-entry made token %d of %d, queue of %d", k2.Token(), k.Token(), s.queueLen(t, "a"))
	}
	if _, err := l.TryAcquire(ctx, "a"); err == nil {
		t.Error("acquired without the context")
	}
	if _, err := other.TryAcquire(inside, "a"); err == nil {
		t.Error("another Locker re-entered")
	}
	if _, err := l.TryAcquire(inside, "a", locker.WithOwner("somebody else")); err == nil {
		t.Error("another owner re-entered")
	}
	reader, err := l.Acquire(inside, "a", locker.Shared())
	if err != nil {
		t.Fatalf("a writer may read: %v", err)
	}
	deeper, err := l.Acquire(acquire(t, l, "b").Context(k2.Context(inside)), "a")
	if err != nil {
		t.Fatalf("through another lock's context: %v", err)
	}
	release(t, k) // in any order; the ticket goes with the last
	want(t, context.Cause(inside), locker.ErrReleased)
	for _, k := range []*locker.Lock{reader, k2} {
		release(t, k)
		want(t, k.Release(ctx), locker.ErrReleased)
	}
	if s.queueLen(t, "a") != 1 || deeper.Err() != nil {
		t.Error("the ticket went before the last handle")
	}
	release(t, deeper)
	if s.queueLen(t, "a") != 0 {
		t.Error("the ticket outlived the last handle")
	}
}

func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	ctx := context.Background()
	k := acquire(t, l, "a", locker.Shared(), locker.WithOwner("me"))
	_, err := l.Acquire(k.Context(ctx), "a")
	want(t, err, locker.ErrUpgrade)
	_, err = l.Acquire(ctx, "a", locker.WithOwner("me"))
	want(t, err, locker.ErrUpgrade)
	_, err = l.TryAcquire(ctx, "a", locker.WithOwner("me"))
	want(t, err, locker.ErrUpgrade)
	again := acquire(t, l, "a", locker.Limit(3), locker.WithOwner("me"))
	release(t, again)
	release(t, k)
}

// It is refused at once while the reader waits, too.
func TestUpgradeOfAWaiterIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		k := acquire(t, l, "a")
		got := make(chan *locker.Lock, 1)
		go func() { got <- acquire(t, l, "a", locker.Shared(), locker.WithOwner("me")) }()
		synctest.Wait()
		begun := time.Now()
		_, err := l.Acquire(context.Background(), "a", locker.WithOwner("me"), locker.WithWait(time.Minute))
		want(t, err, locker.ErrUpgrade)
		if d := time.Since(begun); d != 0 {
			t.Errorf("refused after %v", d)
		}
		release(t, k)
		release(t, <-got)
	})
}

func TestReentryLengthensAndNeverShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New(), locker.WithSafetyMargin(0))
		defer l.Close()
		begun := time.Now()
		fixed := locker.WithoutRenewal()
		k := acquire(t, l, "a", fixed, locker.WithTTL(10*time.Second), locker.WithOwner("me"))
		acquire(t, l, "a", fixed, locker.WithTTL(time.Second), locker.WithOwner("me"))
		acquire(t, l, "a", fixed, locker.WithTTL(20*time.Second), locker.WithOwner("me"))
		<-k.Done()
		if d := time.Since(begun); d != 20*time.Second {
			t.Errorf("lease of 10s, re-entered for 1s and for 20s, ended after %v", d)
		}
	})
}

// A re-entry for less does not make renewals ask for less.
func TestReentryForLessKeepsTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		me := locker.WithOwner("me")
		acquire(t, l, "a", me, locker.WithTTL(9*time.Second))
		acquire(t, l, "a", me, locker.WithTTL(3*time.Second))
		time.Sleep(10 * time.Second)
		if n := len(s.renewals()); n != 3 {
			t.Errorf("%d renewals in 10 s with a TTL of 9 s, want 3", n)
		}
	})
}

// The context of a released handle re-enters nothing, though another handle
// holds the lock.
func TestReleasedHandleIsNotReentered(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	ctx := context.Background()
	k := acquire(t, l, "a")
	kept, err := l.Acquire(k.Context(ctx), "a")
	if err != nil {
		t.Fatal(err)
	}
	stale := context.WithoutCancel(k.Context(ctx))
	release(t, k)
	_, err = l.TryAcquire(stale, "a")
	want(t, err, locker.ErrNotAcquired)
	release(t, kept)
}

// A fixed lease is renewed for as long as a re-entrant handle wants that.
func TestReentryTurnsRenewalOnAndOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New(), locker.WithSafetyMargin(0))
		defer l.Close()
		ttl := locker.WithTTL(3 * time.Second)
		outer := acquire(t, l, "a", locker.WithoutRenewal(), ttl)
		inner, err := l.Acquire(outer.Context(context.Background()), "a", ttl)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		release(t, inner)
		if outer.Err() != nil {
			t.Fatal("lost while the inner handle was renewed")
		}
		begun := time.Now()
		<-outer.Done()
		if d := time.Since(begun); d > 3*time.Second || d < 2*time.Second {
			t.Errorf("the fixed lease ended %v after renewal stopped", d)
		}
	})
}

// A fixed lease lasts its whole TTL though the lease that it has re-entered was renewed then:
// that renewal ends with the handle that wanted it.
func TestFixedReentryOfARenewedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New(), locker.WithSafetyMargin(0))
		defer l.Close()
		ttl := locker.WithTTL(30 * time.Second)
		outer := acquire(t, l, "a", ttl)
		time.Sleep(9 * time.Second) // the next renewal is after 10 s
		begun := time.Now()
		inner, err := l.Acquire(outer.Context(context.Background()), "a", locker.WithoutRenewal(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		release(t, outer)
		<-inner.Done()
		if d := time.Since(begun); d != 30*time.Second {
			t.Errorf("a fixed lease of 30s ended after %v", d)
		}
	})
}

func TestLostLockIsNotReentered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		s.set(func(s *stub) {
			s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
		})
		ctx := context.Background()
		k := acquire(t, l, "a", locker.WithTTL(time.Second), locker.WithOwner("me"))
		inside := k.Context(ctx)
		<-k.Done()
		_, err := l.Acquire(inside, "a")
		want(t, err, context.Canceled)
		if errors.Is(err, locker.ErrLost) { // the loss of the outer lock, which is no answer to this call
			t.Error(err)
		}
		again, err := l.Acquire(context.WithoutCancel(inside), "a", locker.WithOwner("me"))
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= k.Token() {
			t.Error("re-entered a lost lock")
		}
		want(t, k.Release(ctx), locker.ErrLost)
		if again.Err() != nil {
			t.Error("the release of the lost lock touched the new one")
		}
		release(t, again)
	})
}

// A re-entry for a longer lease, which the store does not confirm before the wait limit,
// is ErrUnavailable, and not the error of a context: the caller's has not ended.
func TestReentryAtTheWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(10*time.Second))
		s.set(func(s *stub) {
			s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}
		})
		begun := time.Now()
		_, err := l.Acquire(k.Context(t.Context()), "a", locker.WithTTL(time.Minute), locker.WithWait(time.Second))
		want(t, err, locker.ErrUnavailable)
		if errors.Is(err, context.Canceled) || time.Since(begun) != time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		s.set(func(s *stub) { s.renew = nil })
		release(t, k)
	})
}
