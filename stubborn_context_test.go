package locker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
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

// A driver that notifies of a loss does not wait for a caller's context: it has others to notify.
func TestStubbornContextHoldsUpNoDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pusher{stub: newStub()}
		l := locker.New(p)
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		blocks := newStubborn(ctx)
		defer close(blocks.unblock)
		first, second := acquire(t, l, "first"), acquire(t, l, "second")
		_ = first.Context(blocks)
		blocks.armed.Store(true)
		var lost []driver.Hold
		for _, k := range []*locker.Lock{first, second} {
			q, err := p.Inspect(t.Context(), k.Name())
			want(t, err, nil)
			lost = append(lost, driver.Hold{Name: k.Name(), ID: q[0].ID, Token: k.Token()})
		}
		go func() {
			for _, h := range lost {
				p.notify(h, driver.ErrLost)
			}
		}()
		select {
		case <-second.Done():
		case <-time.After(time.Second):
			t.Error("the driver waits for the context of a caller")
		}
	})
}

// A caller's context that blocks keeps Close from removing no other lock, and from returning. The
// ticket of the lock whose context has not ended stays: its work may go on.
func TestStubbornContextHoldsUpNoClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := s.Join()
		defer other.Close()
		var seen events
		l := locker.New(s, locker.WithObserver(seen.add), locker.WithReleaseTimeout(2*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		blocks := newStubborn(ctx)
		defer close(blocks.unblock)
		stuck, err := l.Acquire(blocks, "stuck")
		if err != nil {
			t.Fatal(err)
		}
		_ = stuck.Context(blocks)
		var works []context.Context
		for i := range 100 {
			works = append(works, acquire(t, l, fmt.Sprint(i)).Context(ctx))
		}
		blocks.armed.Store(true)
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		time.Sleep(time.Millisecond)
		for i, work := range works {
			want(t, context.Cause(work), locker.ErrReleased)
			if q, err := other.Inspect(t.Context(), fmt.Sprint(i)); err != nil || len(q) > 0 {
				t.Fatalf("%s: %v, %v", fmt.Sprint(i), q, err)
			}
		}
		select {
		case err := <-closed:
			want(t, err, nil)
		case <-time.After(3 * time.Second):
			t.Fatal("Close does not return")
		}
		if q, err := other.Inspect(t.Context(), "stuck"); err != nil || len(q) > 0 {
			t.Errorf("the lock whose context blocks: %v, %v", q, err)
		}
		if n := len(seen.of(locker.EventReleased)); n != 101 {
			t.Errorf("%d events of a release, want one for each lock", n)
		}
	})
}

// The request that Close sends to remove a ticket asks the context of nobody's call.
func TestCloseAsksNoContextOfACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			_ = ctx.Value("span") // as clients of stores do
			return next(ctx, h)
		}
		l := locker.New(s, locker.WithObserver(func(context.Context, locker.Event) {}))
		blocks := newStubborn(t.Context())
		defer close(blocks.unblock)
		if _, err := l.Acquire(blocks, "a"); err != nil {
			t.Fatal(err)
		}
		blocks.armed.Store(true)
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		select {
		case err := <-closed:
			want(t, err, nil)
		case <-time.After(time.Minute):
			t.Fatal("Close does not return")
		}
	})
}

// A handle that is released when Close has begun is not confirmed by the store.
func TestReleaseDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(newStub(), locker.WithReleaseTimeout(time.Second))
		first, second := acquire(t, l, "a", locker.WithOwner("me")), acquire(t, l, "a", locker.WithOwner("me"))
		blocks := newStubborn(t.Context())
		defer close(blocks.unblock)
		_ = first.Context(blocks) // so that Close does not come to the second handle
		blocks.armed.Store(true)
		go func() { _ = l.Close() }()
		synctest.Wait()
		want(t, second.Release(t.Context()), locker.ErrReleased)
		time.Sleep(time.Minute)
	})
}

// TestManyStubbornContexts: Close removes the locks that have no such context, however many have.
func TestManyStubbornContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := s.Join()
		defer other.Close()
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return next(ctx, h)
		}
		l := locker.New(s, locker.WithReleaseTimeout(2*time.Second))
		blocks := newStubborn(t.Context())
		defer close(blocks.unblock)
		for i := range 300 {
			_ = acquire(t, l, fmt.Sprint("stuck", i)).Context(blocks)
		}
		for i := range 300 {
			acquire(t, l, fmt.Sprint(i))
		}
		blocks.armed.Store(true)
		go l.Close()
		time.Sleep(time.Second)
		left := 0
		for i := range 300 {
			if q, _ := other.Inspect(t.Context(), fmt.Sprint(i)); len(q) > 0 {
				left++
			}
		}
		time.Sleep(2 * time.Second)
		later := 0
		for i := range 300 {
			if q, _ := other.Inspect(t.Context(), fmt.Sprint(i)); len(q) > 0 {
				later++
			}
		}
		if left+later > 0 {
			t.Errorf("after a second %d of 300 locks are not removed, after the bound %d", left, later)
		}
	})
}

// TestLossBesideAStubbornContext: the other contexts of a lease that was lost end, those of another handle or of the same.
func TestLossBesideAStubbornContext(t *testing.T) {
	for _, same := range []bool{false, true} {
		for range 10 {
			t.Run(fmt.Sprint("same handle ", same), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub()
					o := locker.New(s.Join())
					defer o.Close()
					l := locker.New(s, locker.WithReleaseTimeout(time.Second))
					defer l.Close()
					first, second := acquire(t, l, "a", locker.WithOwner("me")), acquire(t, l, "a", locker.WithOwner("me"))
					if same {
						second = first
					}
					blocks := newStubborn(t.Context())
					defer close(blocks.unblock)
					_ = first.Context(blocks)
					work := second.Context(t.Context())
					blocks.armed.Store(true)
					if err := s.Break(t.Context(), "a", first.Token()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					k := acquire(t, o, "a")
					release(t, k)
					if work.Err() == nil {
						t.Error("another has had the lock for a minute, and the context has not ended")
					}
				})
			})
		}
	}
}

// TestReleaseUnderAStubbornContext: Release returns, and has removed the ticket.
func TestReleaseUnderAStubbornContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		o := locker.New(s.Join())
		defer o.Close()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		k := acquire(t, l, "a")
		blocks := newStubborn(t.Context())
		defer close(blocks.unblock)
		_ = k.Context(blocks)
		blocks.armed.Store(true)
		released := make(chan error, 1)
		go func() { released <- k.Release(t.Context()) }()
		time.Sleep(10 * time.Minute)
		if len(released) == 0 {
			t.Error("Release has not returned after ten minutes")
		}
		if _, err := o.TryAcquire(t.Context(), "a"); err != nil {
			t.Errorf("ten minutes after Release began: %v", err)
		}
	})
}
