package locker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// inTwo runs f in a bubble, with two Clients of one store.
func inTwo(t *testing.T, f func(t *testing.T, s *stub, l, other *locker.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l, other := locker.New(s), locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		f(t, s, l, other)
	})
}

// A group that was not acquired blocks nobody: the minimum hold is for the work that its holder
// has begun.
func TestGroupThatFailsLeavesNoMinimumHold(t *testing.T) {
	inTwo(t, func(t *testing.T, _ *stub, l, other *locker.Client) {
		blocker := acquire(t, other, "b")
		for _, wait := range []time.Duration{0, time.Second} {
			_, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"}, locker.WithMinHold(time.Hour), locker.WithWait(wait))
			want(t, err, locker.ErrNotAcquired)
			time.Sleep(time.Second)
			k, err := other.TryAcquire(t.Context(), "a")
			if err != nil {
				t.Fatalf("after a wait of %v: %v", wait, err)
			}
			release(t, k)
		}
		release(t, blocker)
	})
}

// What the same owner has acquired meanwhile keeps its minimum hold.
func TestGroupThatFailsKeepsTheMinimumHoldOfOthers(t *testing.T) {
	inTwo(t, func(t *testing.T, _ *stub, l, other *locker.Client) {
		blocker := acquire(t, other, "b")
		hold := []locker.Option{locker.WithMinHold(time.Hour), locker.WithOwner("me")}
		failed := make(chan error)
		go func() {
			_, err := locker.AcquireAll(context.Background(), l, []string{"a", "b"}, append(hold, locker.WithWait(time.Second))...)
			failed <- err
		}()
		synctest.Wait()
		release(t, acquire(t, l, "a", hold...))
		want(t, <-failed, locker.ErrNotAcquired)
		time.Sleep(time.Minute)
		_, err := other.TryAcquire(t.Context(), "a")
		want(t, err, locker.ErrNotAcquired)
		time.Sleep(time.Hour)
		release(t, acquire(t, other, "a"))
		release(t, blocker)
	})
}

// What the same owner acquires while a group that has failed is released has the minimum hold that it asks for.
func TestGroupThatFailsIsReentered(t *testing.T) {
	inTwo(t, func(t *testing.T, s *stub, l, other *locker.Client) {
		names := []string{"a"} // is released last
		for i := range 64 {
			names = append(names, fmt.Sprintf("b%02d", i))
		}
		blocker := acquire(t, other, "c")
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			time.Sleep(20 * time.Millisecond)
			return next(ctx, h)
		}
		hold := []locker.Option{locker.WithMinHold(time.Hour), locker.WithOwner("me")}
		_, err := locker.AcquireAll(t.Context(), l, append(names, "c"), append(hold, locker.WithWait(time.Second))...)
		want(t, err, locker.ErrNotAcquired)
		k, err := l.TryAcquire(t.Context(), "a", hold...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		release(t, k)
		time.Sleep(time.Second)
		_, err = other.TryAcquire(t.Context(), "a")
		want(t, err, locker.ErrNotAcquired)
		release(t, acquire(t, other, "b00"))
		time.Sleep(time.Hour)
		release(t, acquire(t, other, "a"))
		release(t, blocker)
	})
}

// Close of a Client whose group waits leaves no minimum hold behind either.
func TestGroupThatIsClosedLeavesNoMinimumHold(t *testing.T) {
	inTwo(t, func(t *testing.T, _ *stub, l, other *locker.Client) {
		blocker := acquire(t, other, "b")
		failed := make(chan error)
		go func() {
			_, err := locker.AcquireAll(context.Background(), l, []string{"a", "b"}, locker.WithMinHold(time.Hour))
			failed <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		want(t, <-failed, locker.ErrClosed)
		k, err := other.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		release(t, k)
		release(t, blocker)
	})
}

// A group that was acquired has its minimum hold.
func TestGroupHasItsMinimumHold(t *testing.T) {
	inTwo(t, func(t *testing.T, _ *stub, l, other *locker.Client) {
		k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"}, locker.WithMinHold(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		release(t, k)
		time.Sleep(time.Hour - time.Second)
		for _, name := range []string{"a", "b"} {
			_, err = other.TryAcquire(t.Context(), name)
			want(t, err, locker.ErrNotAcquired)
		}
		time.Sleep(2 * time.Second)
		release(t, acquire(t, other, "b"))
	})
}

// A lock that a group has re-entered keeps its minimum hold when the group fails.
func TestGroupThatFailsKeepsTheMinimumHoldOfWhatItReentered(t *testing.T) {
	inTwo(t, func(t *testing.T, _ *stub, l, other *locker.Client) {
		blocker := acquire(t, other, "b")
		hold := []locker.Option{locker.WithMinHold(time.Hour), locker.WithOwner("me")}
		outer := acquire(t, l, "a", hold...)
		_, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"}, append(hold, locker.WithWait(0))...)
		want(t, err, locker.ErrNotAcquired)
		release(t, outer)
		time.Sleep(time.Minute)
		_, err = other.TryAcquire(t.Context(), "a")
		want(t, err, locker.ErrNotAcquired)
		release(t, blocker)
	})
}
