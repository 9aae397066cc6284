package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

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

// The error of a release says why the store was not reached, though the last try had
// no time left.
func TestReleaseSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error {
				select {
				case <-time.After(400 * time.Millisecond):
					return errRefused
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		want(t, k.Release(context.Background()), syscall.ECONNREFUSED)
		s.set(func(s *stub) { s.release = nil })
	})
}

// sharing is a store whose tickets share a session: a ticket that was granted
// stays until it is released, however short its lease is.
func sharing() *stub {
	s := newStub()
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		r.TTL = time.Hour
		return next(ctx, r)
	}
	return s
}

// away makes all releases fail until back is called.
func (s *stub) away(err error) (back func()) {
	s.set(func(s *stub) {
		s.release = func(context.Context, driver.Hold, releaseFunc) error { return err }
	})
	return func() { s.set(func(s *stub) { s.release = nil }) }
}

// A ticket whose release was not answered is removed soon after the store is back,
// whatever else shares its session.
func TestUnansweredReleaseIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		l := locker.New(s)
		defer l.Close()
		ttl := locker.WithTTL(15 * time.Second)
		first, second := acquire(t, l, "first", ttl), acquire(t, l, "second", ttl)
		back := s.away(errDown)
		begun := time.Now()
		err := first.Release(context.Background())
		want(t, err, errDown)
		if d := time.Since(begun); d > 5100*time.Millisecond {
			t.Errorf("release took %v", d)
		}
		if !strings.Contains(err.Error(), "in the background") {
			t.Errorf("%v does not say what happens to the lock", err)
		}
		want(t, first.Release(context.Background()), locker.ErrReleased)
		time.Sleep(40 * time.Second)
		back()
		time.Sleep(2 * time.Second)
		if n := s.queueLen(t, "first"); n != 0 {
			t.Errorf("%d tickets 2s after the store is back", n)
		}
		if second.Err() != nil {
			t.Error("the other lock was lost")
		}
		release(t, second)
	})
}

// The ticket of a wait that was given up is removed in the same way.
func TestGivenUpWaitIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		back := s.away(errDown)
		_, err := l.Acquire(ctx, "a")
		want(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		back()
		time.Sleep(2 * time.Second)
		if n := s.queueLen(t, "a"); n != 1 {
			t.Errorf("%d tickets 2s after the store is back, want the holder's", n)
		}
	})
}

// A store that does not answer is asked for one ticket at a time, a few times a
// second, and for all of them once it answers.
func TestRemovalsSpareAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		s := sharing()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("name-%d", i)
		}
		group, err := locker.AcquireAll(context.Background(), l, names)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		tries, under, most := 0, 0, 0
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error {
				mu.Lock()
				tries++
				under++
				most = max(most, under)
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				under--
				return ctx.Err()
			}
		})
		want(t, group.Release(context.Background()), locker.ErrUnavailable)
		time.Sleep(20 * time.Second)
		mu.Lock()
		tries, most = 0, 0
		mu.Unlock()
		time.Sleep(time.Minute)
		mu.Lock()
		if tries > 60 || tries < 40 || most > 1 {
			t.Errorf("%d tries in a minute, %d at a time", tries, most)
		}
		mu.Unlock()
		s.set(func(s *stub) { s.release = nil })
		time.Sleep(2 * time.Second)
		if names, _ := s.List(context.Background()); len(names) != 0 {
			t.Errorf("%d of %d left 2s after the store is back", len(names), n)
		}
	})
}

// The store is not asked to remove a ticket that never existed.
func TestNoTicketIsNotRemoved(t *testing.T) {
	s := newStub()
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		return driver.Grant{}, driver.NoTicket(errDown)
	}
	s.release = func(context.Context, driver.Hold, releaseFunc) error {
		t.Error("the store was asked")
		return nil
	}
	l := locker.New(s)
	_, err := l.Acquire(context.Background(), "a")
	want(t, err, errDown)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A request that was given up may arrive after the first removal of its ticket. Mostly
// it arrives a moment later, and then blocks the name for a moment only. Sometimes it
// arrives much later.
func TestLateRequestIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		l := locker.New(s)
		defer l.Close()
		for late, gone := range map[time.Duration]time.Duration{
			100 * time.Millisecond: 300 * time.Millisecond,
			time.Second:            4 * time.Second,
			5 * time.Second:        11 * time.Second,
			25 * time.Second:       31 * time.Second,
		} {
			s.set(func(s *stub) {
				s.acquire = func(_ context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
					time.AfterFunc(late, func() { _, _ = next(context.Background(), r) })
					return driver.Grant{}, errDown
				}
			})
			_, err := l.Acquire(context.Background(), "a")
			want(t, err, errDown)
			time.Sleep(gone)
			if n := s.queueLen(t, "a"); n != 0 {
				t.Errorf("after %v: %d tickets left of a request that was %v late", gone, n, late)
			}
			time.Sleep(31 * time.Second)
		}
		if _, _, removals, _ := l.Kept(); removals != 0 {
			t.Errorf("%d orphans are still checked", removals)
		}
	})
}

// A removal whose answers are lost again and again ends with the first one that
// arrives.
func TestRemovalWhoseAnswersAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		k := acquire(t, l, "a")
		back := time.Now().Add(3 * time.Second)
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				err := next(ctx, h)
				if time.Now().Before(back) {
					return errDown
				}
				return err
			}
		})
		if err := k.Release(context.Background()); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if _, _, removals, _ := l.Kept(); removals != 0 {
			t.Errorf("%d tickets are still being removed", removals)
		}
	})
}

// ErrLost may also mean that the store has the ticket, not held: it is removed.
func TestLostTicketIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		s.renew = func(context.Context, driver.Renewal, renewFunc) error { return driver.ErrLost }
		l := locker.New(s)
		defer l.Close()
		<-acquire(t, l, "a", locker.WithTTL(3*time.Second)).Done()
		time.Sleep(time.Second)
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets of a lost lock", n)
		}
	})
}

// A store that refuses at once is asked a few times a second.
func TestRemovalBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		k := acquire(t, l, "a")
		var tries atomic.Int64
		s.set(func(s *stub) {
			s.release = func(context.Context, driver.Hold, releaseFunc) error {
				tries.Add(1)
				return errRefused
			}
		})
		want(t, k.Release(context.Background()), locker.ErrUnavailable)
		time.Sleep(10 * time.Second)
		tries.Store(0)
		time.Sleep(time.Minute)
		if n := tries.Load(); n < 240 || n > 330 {
			t.Errorf("%d tries in a minute, want one every 188 to 250 ms", n)
		}
		s.set(func(s *stub) { s.release = nil })
	})
}

// A release whose ctx has ended asks the store all the same, with a deadline of its own.
func TestReleaseWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				deadline, ok := ctx.Deadline()
				if left := time.Until(deadline); !ok || left != time.Second || ctx.Err() != nil {
					t.Errorf("a deadline in %v, %v", left, ctx.Err())
				}
				select {
				case <-time.After(500 * time.Millisecond):
					return next(ctx, h)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := k.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// In a long outage the book of tickets to be removed does not grow without limit: when it is
// full, acquisitions fail at once, without a request. When the store is back, they work.
func TestBookIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		asked := 0
		s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
			asked++
			return driver.Grant{}, driver.Unavailable(errDown)
		}
		back := s.away(driver.Unavailable(errDown))
		l := locker.New(s)
		defer l.Close()
		for range 11_000 {
			_, err := l.TryAcquire(t.Context(), "a")
			want(t, err, locker.ErrUnavailable)
		}
		if _, _, kept, _ := l.Kept(); kept > 10_001 || kept != asked {
			t.Errorf("%d tickets in the books, of %d requests", kept, asked)
		}
		back()
		s.set(func(s *stub) { s.acquire = nil })
		time.Sleep(time.Second)
		release(t, acquire(t, l, "a"))
		time.Sleep(time.Minute)
		if _, _, kept, _ := l.Kept(); kept != 0 {
			t.Errorf("%d tickets in the books, a minute after the outage", kept)
		}
	})
}

// A waiter that cannot queue again, since the book is full, notifies once that its ticket is gone.
func TestWaiterWhileTheBookIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		s := newStub()
		l := locker.New(s, locker.WithObserver(seen.add))
		defer l.Close()
		k := acquire(t, l, "a")
		got := make(chan *locker.Lock)
		go func() { got <- acquire(t, l, "a") }()
		synctest.Wait()
		s.set(func(s *stub) {
			s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
				return driver.Grant{}, driver.Unavailable(errDown)
			}
		})
		back := s.away(driver.Unavailable(errDown))
		for range 11_000 {
			_, err := l.TryAcquire(t.Context(), "b")
			want(t, err, locker.ErrUnavailable)
		}
		q, err := l.Inspect(t.Context(), "a")
		if err != nil || len(q.Tickets) != 2 || l.Break(t.Context(), "a", q.Tickets[1].Token) != nil {
			t.Fatalf("%v, %v", q, err)
		}
		time.Sleep(5 * time.Second)
		if n := len(seen.of(locker.EventRejoined)); n != 1 {
			t.Errorf("notified %d times", n)
		}
		back()
		s.set(func(s *stub) { s.acquire = nil })
		release(t, k)
		release(t, <-got)
	})
}

// What an outage may leave of locks that were held, and of calls that were queued, when it
// began is bounded by their number. It does not fill the book: the driver may have another
// store that grants (compose.Fallback).
func TestHeldLocksDoNotFillTheBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		acquire(t, l, "queue")
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for i := range 1_000 {
			var ks []*locker.Lock
			for j := range 10 {
				ks = append(ks, acquire(t, l, strconv.Itoa(10*i+j)))
			}
			group.Go(func() {
				_, err := l.Acquire(ctx, "queue")
				want(t, err, context.Canceled)
				for _, k := range ks {
					_ = k.Release(ctx)
				}
			})
		}
		synctest.Wait()
		back := s.away(driver.Unavailable(errDown))
		cancel()
		group.Wait()
		time.Sleep(2 * time.Second)
		if _, _, kept, _ := l.Kept(); kept < 10_500 {
			t.Errorf("%d tickets in the books: this tests nothing", kept)
		}
		if _, err := l.TryAcquire(t.Context(), "another"); err != nil {
			t.Error(err)
		}
		back()
	})
}
