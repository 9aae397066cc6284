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
)

// After a suspension of the machine, leases that are over are lost at once, though
// the monotonic clock stood still.
func TestSuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		l := locker.New(newStub(), locker.WithSuspension(func() time.Duration { return time.Duration(asleep.Load()) }))
		defer l.Close()
		watched := acquire(t, l, "a", locker.WithTTL(30*time.Second))
		asked := acquire(t, l, "b", locker.WithTTL(30*time.Second))
		long := acquire(t, l, "c", locker.WithTTL(time.Hour))
		asleep.Store(int64(time.Minute))
		want(t, asked.Err(), locker.ErrLost)
		begun := time.Now()
		<-watched.Done()
		if d := time.Since(begun); d > time.Second {
			t.Errorf("notified %v after the machine woke", d)
		}
		if long.Err() != nil {
			t.Error("a lease of an hour was lost in a minute")
		}
		// A lease that is taken afterwards has its whole length.
		k := acquire(t, l, "d", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		begun = time.Now()
		<-k.Done()
		if d := time.Since(begun); d != 9900*time.Millisecond {
			t.Errorf("valid for %v of 10s", d)
		}
	})
}

// The lease of a request that was under way during a suspension counts from before
// the suspension.
func TestSuspendedWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			asleep.Store(int64(time.Minute))
			time.Sleep(time.Millisecond)
			return g, err
		}
		over := true
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			if over {
				return driver.ErrLost // the store's clock went on
			}
			return next(ctx, r)
		}
		l := locker.New(s, locker.WithSuspension(func() time.Duration { return time.Duration(asleep.Load()) }))
		defer l.Close()
		_, err := l.TryAcquire(context.Background(), "a")
		want(t, err, locker.ErrUnavailable)
		if errors.Is(err, locker.ErrLost) {
			t.Errorf("%v: the lock was never held", err)
		}
		// If the machine was suspended while the ticket waited, the lease began only now.
		over = false
		release(t, acquire(t, l, "b"))
	})
}

// A lock that is taken after a suspension, in which none was held, is neither lost because of
// it nor passed on before the end of its minimum hold.
func TestSuspendedWhileNothingIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		s := newStub()
		l := locker.New(s, locker.WithSuspension(func() time.Duration { return time.Duration(asleep.Load()) }))
		defer l.Close()
		release(t, acquire(t, l, "a"))
		for range 2 {
			asleep.Add(int64(time.Hour))
			time.Sleep(5 * time.Second)
			k := acquire(t, l, "a", locker.WithTTL(10*time.Second), locker.WithMinHold(10*time.Second))
			time.Sleep(2 * time.Second)
			release(t, k)
			time.Sleep(6 * time.Second)
			if s.queueLen(t, "a") != 1 {
				t.Error("passed on within the minimum hold")
			}
			time.Sleep(5 * time.Second)
		}
	})
}

// A lock that is taken while another goroutine measures the suspension is not lost.
func TestTwoMeasureASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		var block atomic.Bool
		measuring, goOn := make(chan struct{}), make(chan struct{})
		l := locker.New(newStub(), locker.WithSuspension(func() time.Duration {
			if block.CompareAndSwap(true, false) {
				close(measuring)
				<-goOn
			}
			return time.Duration(asleep.Load())
		}))
		defer l.Close()
		release(t, acquire(t, l, "earlier"))
		time.Sleep(2500 * time.Millisecond)
		asleep.Add(int64(time.Hour))
		block.Store(true)
		other := make(chan struct{})
		go func() {
			defer close(other)
			release(t, acquire(t, l, "b"))
		}()
		<-measuring
		k := acquire(t, l, "a", locker.WithTTL(10*time.Second))
		close(goOn)
		<-other
		time.Sleep(2 * time.Second)
		if err := k.Err(); err != nil {
			t.Error(err)
		}
		release(t, k)
	})
}
