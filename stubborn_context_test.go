package locker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// stubborn is a caller's context that blocks who asks it for a value, once it is armed.
type stubborn struct {
	context.Context
	armed   *atomic.Bool
	unblock chan struct{}
}

func (s stubborn) Value(key any) any {
	if s.armed.Load() {
		<-s.unblock
	}
	return s.Context.Value(key)
}

func newStubborn(parent context.Context) stubborn {
	return stubborn{parent, new(atomic.Bool), make(chan struct{})}
}

// A caller's context that blocks holds up neither the renewal nor the end of other leases.
func TestStubbornContextHoldsUpNoOtherLock(t *testing.T) {
	for _, push := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			l := locker.New(s)
			defer l.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			blocks := newStubborn(ctx)
			defer close(blocks.unblock)
			renewed := acquire(t, l, "renewed", locker.WithTTL(5*time.Second))
			fixed := acquire(t, l, "fixed", locker.WithTTL(3*time.Second), locker.WithoutRenewal())
			lost := acquire(t, l, "lost", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
			_ = lost.Context(blocks)
			blocks.armed.Store(true)
			if push {
				go func() { _ = s.Break(t.Context(), "lost", lost.Token()) }()
			}
			time.Sleep(time.Minute)
			select {
			case <-fixed.Done():
			default:
				t.Error("the fixed lease does not end")
			}
			want(t, renewed.Err(), nil)
		})
	}
}
