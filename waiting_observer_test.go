package locker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// The ticket of a wait that has ended is removed, whatever the observers that hear of the wait do.
func TestObserverOfAWaitKeepsNoTicket(t *testing.T) {
	ends := map[string]func(l *locker.Client, cancel func()){
		"its context ends": func(_ *locker.Client, cancel func()) { cancel() },
		"its wait is over": func(*locker.Client, func()) { time.Sleep(5 * time.Second) },
		"Close begins":     func(l *locker.Client, _ func()) { go l.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub()
				holder := locker.New(s.Driver.Join())
				defer holder.Close()
				acquire(t, holder, "a")
				observer, blocked, unblock := blocking(locker.EventWaiting)
				l := locker.New(s, locker.WithObserver(observer))
				defer l.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error)
				go func() {
					_, err := l.Acquire(ctx, "a", locker.WithWait(5*time.Second))
					failed <- err
				}()
				<-blocked
				end(l, cancel)
				time.Sleep(100 * time.Millisecond)
				if q, err := holder.Inspect(t.Context(), "a"); err != nil || len(q.Tickets) != 1 {
					t.Errorf("%+v, %v: want the holder alone", q.Tickets, err)
				}
				time.Sleep(time.Minute) // Close waits no longer
				close(unblock)
				if err := <-failed; err == nil {
					t.Error("acquired")
				}
			})
		})
	}
}

// A ticket that is granted while it is removed, since its wait has ended, is no lock.
func TestGrantOfAnAbandonedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := acquire(t, locker.New(s.Driver.Join()), "a")
		var removed atomic.Bool
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			return next(context.WithoutCancel(ctx), r) // the grant comes before the driver looks at ctx
		}
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			removed.Store(true)
			return next(ctx, h)
		}
		observer, blocked, unblock := blocking(locker.EventWaiting)
		l := locker.New(s, locker.WithObserver(observer))
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "a")
			failed <- err
		}()
		<-blocked
		release(t, other)
		cancel()
		time.Sleep(time.Second)
		close(unblock)
		want(t, <-failed, context.Canceled)
		if !removed.Load() || s.queueLen(t, "a") != 0 {
			t.Error("the ticket is left")
		}
	})
}

// A call that has waited for another one of its owner asks for no ticket once Close has waited
// long enough: nobody would remove it.
func TestObserverOfAnOwnersWaitLeavesNoTicket(t *testing.T) {
	for range 20 { // of the ends of two calls either may be seen first
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			holder := locker.New(s.Driver.Join())
			defer holder.Close()
			held := acquire(t, holder, "a")
			waits, unblock := 0, make(chan struct{})
			l := locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
				if e.Kind == locker.EventWaiting {
					if waits++; waits == 2 {
						<-unblock
					}
				}
			}))
			ended := make(chan struct{})
			for range 2 {
				go func() {
					_, _ = l.Acquire(context.Background(), "a", locker.WithOwner("x"))
					ended <- struct{}{}
				}()
				synctest.Wait()
			}
			closed := make(chan struct{})
			go func() {
				_ = l.Close()
				close(closed)
			}()
			<-ended
			release(t, held)
			time.Sleep(time.Minute)
			close(unblock)
			<-ended
			<-closed
			if q, err := holder.Inspect(t.Context(), "a"); err != nil || len(q.Tickets) != 0 {
				t.Fatalf("%+v, %v: want nothing", q.Tickets, err)
			}
		})
	}
}

// TestReleasedWhenAcquireReturns: the ticket of a wait whose context ends while observers hear of it is gone when Acquire returns,
// if the store answers soon.
func TestReleasedWhenAcquireReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		holder := locker.New(s.Driver.Join())
		defer holder.Close()
		acquire(t, holder, "a")
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			time.Sleep(5 * time.Millisecond)
			return next(ctx, h)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l := locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				cancel()
				time.Sleep(time.Millisecond)
			}
		}))
		defer l.Close()
		_, err := l.Acquire(ctx, "a")
		want(t, err, context.Canceled)
		if n := s.queueLen(t, "a"); n != 1 {
			t.Errorf("%d tickets when Acquire has returned, want the holder's", n)
		}
	})
}
