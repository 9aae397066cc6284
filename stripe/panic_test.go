package stripe_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
	"github.com/lockerproject/locker/stripe"
)

// If an observer panics while a caller tries the other segments, the caller keeps none,
// not even the one that it was queued for and that was granted at that moment.
func TestPanicOfAnObserver(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		held := map[string]*stripe.Segment{}
		first := segments(t, l, "s", 2)
		for range 2 {
			k := acquire(t, first)
			held[k.Name()] = k
		}
		var queued atomic.Value
		granted := make(chan struct{})
		other := l.Join(locker.WithObserver(func(_ context.Context, e locker.Event) {
			switch e.Kind {
			case locker.EventWaiting:
				queued.Store(e.Name)
			case locker.EventAcquired:
				close(granted)
			case locker.EventFailed:
				if name, ok := queued.Load().(string); ok {
					release(t, held[name])
					delete(held, name)
					<-granted
					panic("observer")
				}
			}
		}))
		defer other.Close()
		panicked := true
		func() {
			defer func() {
				if r := recover(); r != nil && r != "observer" {
					t.Error(r)
				}
			}()
			_, _ = segments(t, other, "s", 2).Acquire(t.Context())
			panicked = false
		}()
		if !panicked {
			t.Fatal("no panic")
		}
		for _, k := range held {
			release(t, k)
		}
		time.Sleep(time.Second)
		l.AssertFree(t)
	})
}

// An observer that ends the caller's goroutine, or panics, while a segment is waited for does so
// in the caller, who gets no segment.
func TestObserverEndsAWait(t *testing.T) {
	for _, end := range []func(){runtime.Goexit, func() { panic("observer") }} {
		for _, kind := range []locker.EventKind{locker.EventWaiting, locker.EventAcquired, locker.EventFailed} {
			bubble(t, func(t *testing.T, l *lockertest.Locker) {
				first := segments(t, l, "s", 2)
				held := []*stripe.Segment{acquire(t, first), acquire(t, first)}
				var queued atomic.Value
				other := l.Join(locker.WithObserver(func(_ context.Context, e locker.Event) {
					if e.Kind == locker.EventWaiting {
						queued.Store(e.Name)
					}
					if e.Kind == kind && (kind != locker.EventFailed || e.Waited) { // when another segment was taken
						end()
					}
				}))
				defer other.Close()
				returned, done := false, make(chan struct{})
				go func() {
					defer close(done)
					defer func() {
						if r := recover(); r != nil && r != "observer" {
							t.Error(r)
						}
					}()
					_, _ = segments(t, other, "s", 2).Acquire(context.Background())
					returned = true
				}()
				time.Sleep(time.Second)
				free := slices.IndexFunc(held, func(k *stripe.Segment) bool { return k.Name() != queued.Load() })
				release(t, held[free])
				<-done
				if returned {
					t.Errorf("%v: Acquire has returned", kind)
				}
				time.Sleep(2 * time.Second)
				release(t, held[1-free])
				time.Sleep(time.Minute)
				l.AssertFree(t)
			})
		}
	}
}
