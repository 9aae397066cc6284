package stripe_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
	"github.com/lockerproject/locker/stripe"
)

// takeBoth takes both segments of a stripe.
func takeBoth(t *testing.T, l *lockertest.Locker) map[string]*stripe.Segment {
	t.Helper()
	s, held := segments(t, l, "s", 2), make(map[string]*stripe.Segment)
	for range 2 {
		k := acquire(t, s)
		held[k.Name()] = k
	}
	return held
}

// What an observer of the release of a segment too many acquires has a wait limit of its own.
func TestObserverOfASegmentTooMany(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		held := takeBoth(t, l)
		var other *lockertest.Locker
		var queued atomic.Value
		got := make(chan error, 4)
		other = l.Join(locker.WithObserver(func(ctx context.Context, e locker.Event) {
			switch {
			case e.Name == "audit":
			case e.Kind == locker.EventWaiting:
				queued.Store(e.Name)
			case e.Kind == locker.EventAcquired && e.Name != queued.Load(): // another was free: now the one that is waited for is granted, too
				release(t, held[queued.Load().(string)])
				time.Sleep(5 * time.Millisecond)
			case e.Kind == locker.EventReleased && e.Name == queued.Load():
				k, err := other.Acquire(ctx, "audit", locker.WithWait(time.Second))
				if err == nil {
					err = k.Release(ctx)
				}
				got <- err
			}
		}))
		defer other.Close()
		go func() {
			time.Sleep(1500 * time.Millisecond)
			for name, k := range held {
				if name != queued.Load() {
					release(t, k)
				}
			}
		}()
		k, err := segments(t, other, "s", 2).Acquire(context.Background(), locker.WithWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Errorf("the observer's own acquisition: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("nothing was dropped: the test is wrong")
		}
		_ = k.Release(context.Background())
	})
}

// An observer of that release panics: the segment that the caller does not get is released.
func TestObserverPanicsAtASegmentTooMany(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		held := takeBoth(t, l)
		var queued atomic.Value
		var panicked atomic.Bool
		other := l.Join(locker.WithObserver(func(ctx context.Context, e locker.Event) {
			switch {
			case e.Kind == locker.EventWaiting:
				queued.Store(e.Name)
			case e.Kind == locker.EventAcquired && e.Name != queued.Load():
				release(t, held[queued.Load().(string)])
				time.Sleep(5 * time.Millisecond)
			case e.Kind == locker.EventReleased && e.Name == queued.Load() && !panicked.Swap(true):
				panic("observer")
			}
		}))
		defer other.Close()
		go func() {
			time.Sleep(1500 * time.Millisecond)
			for name, k := range held {
				if name != queued.Load() {
					release(t, k)
				}
			}
		}()
		func() {
			defer func() { _ = recover() }()
			_, _ = segments(t, other, "s", 2).Acquire(context.Background())
			t.Error("returned")
		}()
		time.Sleep(5 * time.Minute)
		l.AssertFree(t)
	})
}
