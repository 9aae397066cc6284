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
			defer func() { _ = recover() }()
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
