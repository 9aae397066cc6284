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
	"github.com/lockerproject/locker/driver/memory"
)

func TestCtxBoundsTheAcquisitionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		k, err := l.Acquire(ctx, "a", locker.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := k.Err(); err != nil {
			t.Fatalf("the lock ended with the ctx of Acquire: %v", err)
		}
		if err := k.Release(ctx); err != nil {
			t.Fatalf("release with a ctx that has ended: %v", err)
		}
	})
}

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
		want(t, err, cause)
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

func TestNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		me := locker.WithOwner("me")
		k := acquire(t, l, "a", me)
		_, err := l.Acquire(ctx, "a")
		want(t, err, context.DeadlineExceeded)
		work, done := context.WithCancel(context.Background())
		k.Context(work)
		done()
		synctest.Wait()
		if n := k.Hooks(); n != 0 {
			t.Errorf("%d contexts kept", n)
		}
		release(t, k)
		acquire(t, l, "b", me, locker.WithoutRenewal(), locker.WithTTL(time.Second))
		time.Sleep(time.Minute)
		leases, owners, removals, scheduled := l.Kept()
		if leases+owners+removals+scheduled != 0 {
			t.Errorf("kept: %d leases, %d owners, %d removals, %d scheduled", leases, owners, removals, scheduled)
		}
	})
}

// What a program put into its context for tracing reaches the driver.
func TestContextValuesReachTheStore(t *testing.T) {
	type key struct{}
	s := newStub()
	seen := 0
	check := func(ctx context.Context) {
		before := ctx.Value(key{})
		ctx2, cancel := context.WithCancel(ctx)
		defer cancel()
		if before == "trace" && ctx2.Value(key{}) == "trace" {
			seen++
		}
	}
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		check(ctx)
		return next(ctx, r)
	}
	s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
		check(ctx)
		return next(ctx, h)
	}
	l := locker.New(s)
	defer l.Close()
	ctx := context.WithValue(context.Background(), key{}, "trace")
	k, err := l.Acquire(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(ctx); err != nil || seen != 2 {
		t.Errorf("seen %d times of 2; %v", seen, err)
	}
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

func TestStoreThatDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, _ driver.Request, _ acquireFunc) (driver.Grant, error) {
			<-ctx.Done()
			return driver.Grant{}, errors.Join(context.Cause(ctx), errDown)
		}
		l := locker.New(s)
		defer l.Close()
		begun := time.Now()
		_, err := l.Acquire(context.Background(), "a")
		want(t, err, errDown)
		if d := time.Since(begun); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestWaiterWhoseTicketIsGoneQueuesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := newStub(), &events{}
		l := locker.New(s, locker.WithObserver(told.add))
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
		if n := len(told.of(locker.EventRejoined)); n != 1 {
			t.Errorf("%d events of rejoining, want 1", n)
		}
		release(t, holder)
		release(t, <-got)
		if n := len(told.of(locker.EventWaiting)); n != 1 {
			t.Errorf("%d events of waiting, want 1", n)
		}
	})
}

// A release whose first answer was lost is resolved by the second.
func TestReleaseResolvesAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a")
		first := true
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				err := next(ctx, h)
				if first {
					first = false
					return errDown
				}
				return err
			}
		})
		release(t, k)
		k = acquire(t, l, "a")
		s.set(func(s *stub) {
			s.release = func(context.Context, driver.Hold, releaseFunc) error { return errDown }
		})
		begun := time.Now()
		err := k.Release(context.Background())
		want(t, err, errDown)
		if d := time.Since(begun); d > 6*time.Second {
			t.Errorf("release took %v", d)
		}
		want(t, k.Err(), locker.ErrReleased)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := locker.New(s.Join())
		defer other.Close()
		l := locker.New(s)
		k := acquire(t, l, "a")
		acquire(t, l, "b", locker.WithOwner("me"))
		acquire(t, l, "b", locker.WithOwner("me"))
		blocker := acquire(t, other, "c")
		waited := make(chan error)
		go func() {
			_, err := l.Acquire(context.Background(), "c")
			waited <- err
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- l.Close() }()
		want(t, <-waited, locker.ErrClosed)
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatalf("second Close: %v", err)
		}
		want(t, k.Err(), locker.ErrReleased)
		want(t, k.Release(context.Background()), locker.ErrReleased)
		_, err := l.Acquire(context.Background(), "a")
		want(t, err, locker.ErrClosed)
		_, err = l.Inspect(context.Background(), "a")
		want(t, err, locker.ErrClosed)
		release(t, blocker)
		names, err := other.List(context.Background())
		if err != nil || len(names) != 0 {
			t.Errorf("left in the store: %q, %v", names, err)
		}
	})
}

func TestInvalidOptionsAndNames(t *testing.T) {
	s := newStub()
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		t.Error("the store was touched")
		return driver.Grant{}, errDown
	}
	l := locker.New(s)
	defer l.Close()
	ctx := context.Background()
	long := strings.Repeat("x", 513)
	for name, o := range map[string]locker.Option{
		"zero TTL": locker.WithTTL(0), "negative TTL": locker.WithTTL(-time.Second),
		"TTL without a unit": locker.WithTTL(5), "negative minimum hold": locker.WithMinHold(-1),
		"zero limit": locker.Limit(0), "negative limit": locker.Limit(-1),
		"negative wait": locker.WithWait(-1), "empty owner": locker.WithOwner(""),
		"long owner": locker.WithOwner(long), "owner not UTF-8": locker.WithOwner("\xff"),
		"long note": locker.WithNote(long), "note not UTF-8": locker.WithNote("\xff"),
	} {
		_, err := l.Acquire(ctx, "a", o)
		if !errors.Is(err, locker.ErrInvalidOption) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = l.TryAcquire(ctx, "a", nil, o)
		want(t, err, locker.ErrInvalidOption)
	}
	for _, name := range []string{"", long, "a\xffb"} {
		_, err := l.Acquire(ctx, name)
		want(t, err, locker.ErrInvalidName)
		_, err = l.Inspect(ctx, name)
		want(t, err, locker.ErrInvalidName)
		_, err = locker.AcquireAll(ctx, l, []string{"a", name})
		want(t, err, locker.ErrInvalidName)
	}
	_, err := locker.AcquireAll(ctx, l, nil)
	want(t, err, locker.ErrInvalidName)
	margined := locker.New(memory.New(), locker.WithSafetyMargin(time.Second))
	defer margined.Close()
	_, err = margined.Acquire(ctx, "a", locker.WithTTL(time.Second))
	want(t, err, locker.ErrInvalidOption)
	acquire(t, newClient(t), "a", nil, locker.WithNote(strings.Repeat("x", 512)))
}

func newClient(t *testing.T) *locker.Client {
	l := locker.New(memory.New(), nil)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestErrorsNameStoreVerbAndLock(t *testing.T) {
	s := newStub()
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		return driver.Grant{}, errDown
	}
	l := locker.New(s)
	defer l.Close()
	_, err := l.Acquire(context.Background(), "order:42")
	if got, wanted := err.Error(), `locker: acquire "order:42" on memory: store is down`; got != wanted {
		t.Errorf("got  %s\nwant %s", got, wanted)
	}
	var e *locker.Error
	if !errors.As(err, &e) || e.Op != "acquire" || e.Name != "order:42" || e.Store != "memory" {
		t.Errorf("%#v", e)
	}
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &events{}
		l := locker.New(memory.New(), locker.WithObserver(told.add), locker.WithObserver(nil))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(3*time.Second))
		got := make(chan *locker.Lock)
		go func() { got <- acquire(t, l, "a", locker.WithOwner("me")) }()
		time.Sleep(5 * time.Second)
		release(t, k)
		release(t, <-got)
		if a := told.of(locker.EventAcquired); len(a) != 2 || a[1].Elapsed != 5*time.Second || a[1].Owner != "me" || a[1].Token == 0 {
			t.Errorf("acquired: %+v", a)
		}
		if r := told.of(locker.EventReleased); len(r) != 2 || r[0].Elapsed != 5*time.Second {
			t.Errorf("released: %+v", r)
		}
		if w := told.of(locker.EventWaiting); len(w) != 1 || w[0].Kind.String() != "waiting" {
			t.Errorf("waiting: %+v", w)
		}
		if r := told.of(locker.EventRenewed); len(r) == 0 {
			t.Error("no events of renewals")
		}
	})
}
