package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

func TestCancelledWaitLeavesNoTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a")
		cause := errors.New("the user went away")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := l.Acquire(ctx, "a")
		want(t, err, context.Canceled)
		if !strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("%q does not contain the cause", err)
		}
		ctx2, cancel2 := context.WithTimeout(context.Background(), time.Second)
		defer cancel2()
		_, err = l.Acquire(ctx2, "a")
		want(t, err, context.DeadlineExceeded)
		_, err = l.Acquire(context.Background(), "a", locker.WithWait(time.Second))
		want(t, err, locker.ErrNotAcquired)
		if errors.Is(err, context.Canceled) {
			t.Errorf("the wait limit shows as a cancelled ctx: %v", err)
		}
		_, err = l.Acquire(context.Background(), "a", locker.WithWait(0))
		want(t, err, locker.ErrNotAcquired)
		if n := s.queueLen(t, "a"); n != 1 {
			t.Errorf("queue of %d, want the holder alone", n)
		}
	})
}

func TestWaitsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			_ = ctx.Done() // as a driver does that asks a server
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a")
		time.AfterFunc(time.Hour, func() { _ = k.Release(context.Background()) })
		release(t, acquire(t, l, "a"))
	})
}

// The ticket of an acquisition whose answer was lost is removed, even if the first
// removal is not answered either.
func TestTicketOfALostAnswerIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			if _, err := next(ctx, r); err != nil {
				return driver.Grant{}, err
			}
			return driver.Grant{}, errDown // granted, but the answer was lost
		}
		tries := 0
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			if tries++; tries < 3 {
				return errDown
			}
			return next(ctx, h)
		}
		l := locker.New(s)
		defer l.Close()
		_, err := l.Acquire(context.Background(), "a")
		want(t, err, errDown)
		time.Sleep(time.Second) // the removal continues in the background
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets left after %d tries", n, tries)
		}
	})
}

// A request that was given up may reach the store after the removal of its ticket.
func TestTicketOfALateRequestIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(_ context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			time.AfterFunc(time.Second, func() { _, _ = next(context.Background(), r) })
			return driver.Grant{}, errDown
		}
		l := locker.New(s)
		defer l.Close()
		_, err := l.Acquire(context.Background(), "a")
		want(t, err, errDown)
		time.Sleep(2 * time.Second)
		if n := s.queueLen(t, "a"); n != 1 {
			t.Fatalf("queue of %d, want the late ticket", n)
		}
		time.Sleep(2 * time.Second)
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets left", n)
		}
	})
}

// The caller does not wait for a removal that the store does not answer.
func TestRemovalContinuesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				time.Sleep(4 * time.Second)
				return next(ctx, h)
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := l.Acquire(ctx, "a")
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(begun); d > 1100*time.Millisecond {
			t.Errorf("returned %v after being asked for 1s", d)
		}
		time.Sleep(10 * time.Second)
		if n := s.queueLen(t, "a"); n != 1 {
			t.Errorf("queue of %d, want the holder alone", n)
		}
	})
}

func TestWaiterWhoseTicketIsGoneQueuesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := newStub(), &events{}
		l := locker.New(s, locker.WithObserver(seen.add))
		defer l.Close()
		holder := acquire(t, l, "a")
		got := make(chan *locker.Lock)
		go func() { got <- acquire(t, l, "a") }()
		synctest.Wait()
		q, _ := l.Inspect(context.Background(), "a")
		if err := l.Break(context.Background(), "a", q.Tickets[1].Token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := len(seen.of(locker.EventRejoined)); n != 1 {
			t.Errorf("%d events of rejoining, want 1", n)
		}
		release(t, holder)
		release(t, <-got)
		if n := len(seen.of(locker.EventWaiting)); n != 1 {
			t.Errorf("%d events of waiting, want 1", n)
		}
	})
}

// A waiter whose ticket was lost in an outage, or given up by the driver, asks for another one
// until the store is back.
func TestWaiterQueuesAgainWhenTheStoreIsBack(t *testing.T) {
	for _, gone := range []error{driver.ErrLost, driver.Unavailable(errDown)} {
		t.Run(gone.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, seen := newStub(), &events{}
				l := locker.New(s, locker.WithObserver(seen.add))
				defer l.Close()
				holder := acquire(t, l, "a")
				calls := 0
				s.set(func(s *stub) {
					s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
						switch calls++; {
						case calls == 1:
							r.Joined()
							time.Sleep(time.Minute)
							return driver.Grant{}, gone
						case calls < 20:
							return driver.Grant{}, driver.NoTicket(errRefused)
						default:
							return next(ctx, r)
						}
					}
				})
				got := make(chan *locker.Lock)
				go func() { got <- acquire(t, l, "a") }()
				time.Sleep(2 * time.Minute)
				release(t, holder)
				release(t, <-got)
				if n := len(seen.of(locker.EventRejoined)); n != 1 {
					t.Errorf("%d events of rejoining, want 1", n)
				}
			})
		})
	}
}

// What the store refuses to a waiter is no loss: the call fails.
func TestWaiterThatIsRefusedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := newStub(), &events{}
		l := locker.New(s, locker.WithObserver(seen.add))
		defer l.Close()
		wrong := errors.New("WRONGPASS")
		s.set(func(s *stub) {
			s.acquire = func(_ context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
				r.Joined()
				return driver.Grant{}, wrong
			}
		})
		_, err := l.Acquire(t.Context(), "a")
		want(t, err, wrong)
		if n := len(seen.of(locker.EventRejoined)); n != 0 {
			t.Errorf("%d events of rejoining, want none", n)
		}
	})
}
