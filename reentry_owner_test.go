package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// When one goroutine of an owner takes over from another whose wait was cancelled, a
// try of the same owner returns at once.
func TestOwnerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l, other := locker.New(s), locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		me := locker.WithOwner("me")
		blocker := acquire(t, other, "a")
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "a", me)
			failed <- err
		}()
		synctest.Wait()
		got := make(chan *locker.Lock, 1)
		go func() { got <- acquire(t, l, "a", me) }()
		synctest.Wait()
		cancel()
		want(t, <-failed, context.Canceled)
		synctest.Wait() // the second has taken over, and is queued
		begun := time.Now()
		_, err := l.TryAcquire(context.Background(), "a", me)
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d != 0 {
			t.Errorf("the try took %v", d)
		}
		release(t, blocker)
		release(t, <-got)
	})
}

// The bound for the store's answer holds for goroutines that take over one after the
// other.
func TestOwnerTakesOverAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		other := locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		me := locker.WithOwner("me")
		acquire(t, other, "a")
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _, _ = l.Acquire(ctx, "a", me) }()
		synctest.Wait()
		failed := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := l.Acquire(context.Background(), "a", me)
				failed <- err
			}()
		}
		time.Sleep(time.Minute)
		s.set(func(s *stub) { s.acquire = hung(nil).acquire })
		begun := time.Now()
		cancel()
		want(t, <-failed, locker.ErrUnavailable)
		want(t, <-failed, locker.ErrUnavailable)
		if d := time.Since(begun); d > 10100*time.Millisecond {
			t.Errorf("failed after %v", d)
		}
	})
}

func TestReentryByOwner(t *testing.T) {
	s := newStub()
	l, other := locker.New(s), locker.New(s.Join())
	defer l.Close()
	defer other.Close()
	ctx := context.Background()
	me := locker.WithOwner("me")
	k := acquire(t, l, "a", me)
	k2 := acquire(t, l, "a", me)
	if k.Token() != k2.Token() || k.Owner() != "me" {
		t.Error("the same owner did not re-enter")
	}
	_, err := other.TryAcquire(ctx, "a", me)
	want(t, err, locker.ErrNotAcquired) // another Locker's owner of the same name is another
	release(t, k2)
	release(t, k)
	if s.queueLen(t, "a") != 0 {
		t.Error("ticket left")
	}
}

func TestReentryFromManyGoroutinesAtOnce(t *testing.T) {
	s := newStub()
	l := locker.New(s)
	defer l.Close()
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			for range 20 {
				k, err := l.Acquire(context.Background(), "a", locker.WithOwner("me"))
				if err != nil {
					t.Error(err)
					return
				}
				if err := k.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := s.queueLen(t, "a"); n != 0 {
		t.Errorf("%d tickets left", n)
	}
}

// While one goroutine waits in the queue for an owner, a try of the same owner fails at
// once, and a second goroutine takes over when the wait of the first is cancelled.
func TestOneOwnerWaitingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l, other := locker.New(s), locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		me := locker.WithOwner("me")
		blocker := acquire(t, other, "a")
		first, cancel := context.WithCancel(context.Background())
		firstErr := make(chan error, 1)
		go func() {
			_, err := l.Acquire(first, "a", me)
			firstErr <- err
		}()
		synctest.Wait()
		_, err := l.TryAcquire(context.Background(), "a", me)
		want(t, err, locker.ErrNotAcquired)
		_, err = l.Acquire(context.Background(), "a", me, locker.WithWait(time.Second))
		want(t, err, locker.ErrNotAcquired)

		second := make(chan *locker.Lock, 1)
		go func() { second <- acquire(t, l, "a", me) }()
		synctest.Wait()
		cancel()
		want(t, <-firstErr, context.Canceled)
		synctest.Wait()
		release(t, blocker)
		release(t, <-second)
	})
}

// An owner re-enters its lock until the lock ends, and not longer.
func TestOwnerAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		me, other := locker.WithOwner("me"), locker.WithOwner("other")
		var last uint64
		for what, end := range map[string]func(k *locker.Lock){
			"released": func(k *locker.Lock) { release(t, k) },
			"broken":   func(k *locker.Lock) { _ = l.Break(t.Context(), "a", k.Token()) },
			"expired":  func(*locker.Lock) { time.Sleep(time.Minute) },
		} {
			k := acquire(t, l, "a", me, locker.WithTTL(time.Minute), locker.WithoutRenewal())
			again := acquire(t, l, "a", me, locker.Shared())
			if k.Token() <= last || again.Token() != k.Token() {
				t.Errorf("%s: tokens %d and %d after %d", what, k.Token(), again.Token(), last)
			}
			release(t, again)
			last = k.Token()
			end(k)
			_, owners, _, _ := l.Kept()
			if owners != 0 {
				t.Errorf("%s: %d owners are kept", what, owners)
			}
			release(t, acquire(t, l, "a", other))
		}
	})
}

// Goroutines of one owner fail within the bound for an answer, though they wait for
// each other first.
func TestOwnersOnAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(hung(nil), locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				begun := time.Now()
				_, err := l.Acquire(context.Background(), "a", locker.WithOwner("me"))
				if d := time.Since(begun); !errors.Is(err, locker.ErrUnavailable) || d > 10100*time.Millisecond {
					t.Errorf("%v after %v", err, d)
				}
			})
			time.Sleep(time.Second)
		}
		group.Wait()
	})
}

// Of goroutines that acquire for one owner at the same moment, one queues and the
// others re-enter.
func TestOwnersAtTheSameMoment(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	for range 2000 {
		var got, released sync.WaitGroup
		const n = 4
		got.Add(n)
		for range n {
			released.Go(func() {
				k, err := l.Acquire(t.Context(), "a", locker.WithOwner("me"), locker.WithWait(5*time.Second))
				got.Done()
				if err != nil {
					t.Error(err)
					return
				}
				got.Wait()
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		released.Wait()
		if t.Failed() {
			return
		}
	}
}

// A lease that was acquired without re-entry is not re-entered, and does not hide one
// that is.
func TestOwnerWithoutReentry(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	me, apart := locker.WithOwner("me"), locker.WithoutReentry()
	k := acquire(t, l, "a", me, apart)
	_, err := l.TryAcquire(t.Context(), "a", me)
	want(t, err, locker.ErrNotAcquired)
	release(t, k)

	first := acquire(t, l, "b", me, locker.Shared())
	release(t, acquire(t, l, "b", me, locker.Shared(), apart))
	again := acquire(t, l, "b", me, locker.Shared())
	if again.Token() != first.Token() {
		t.Errorf("token %d, want that of the first lease, %d", again.Token(), first.Token())
	}
	release(t, again)
	release(t, first)
}

// A slow observer is no silence of the store, also for a call that waits for another of its
// owner.
func TestSlowObserverOfAnOwnersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				time.Sleep(11 * time.Second) // longer than the store may take to answer
			}
		}))
		other := locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		blocker := acquire(t, other, "a")
		me := locker.WithOwner("me")
		got := make(chan *locker.Lock, 2)
		for range 2 {
			go func() { got <- acquire(t, l, "a", me) }()
			synctest.Wait()
		}
		time.Sleep(20 * time.Second)
		release(t, blocker)
		release(t, <-got)
		release(t, <-got)
	})
}

// A slow observer of a grant delays the call that it runs in, and no other call of the same
// owner that came before the grant: that one re-enters.
func TestSlowObserverOfAnOwnersGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = grantedAfter(time.Millisecond)
		l := locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventAcquired {
				time.Sleep(15 * time.Second)
			}
		}))
		defer l.Close()
		me := locker.WithOwner("me")
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() { release(t, acquire(t, l, "a", me)) })
		synctest.Wait()
		k := acquire(t, l, "a", me, locker.WithWait(10*time.Millisecond))
		group.Wait()
		release(t, k)
		if s.queueLen(t, "a") != 0 {
			t.Error("the ticket is left")
		}
	})
}

// A driver that says only after the grant that the ticket is queued does no harm.
func TestJoinedLate(t *testing.T) {
	s := newStub()
	joined := make(chan func(), 1)
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		joined <- r.Joined
		r.Joined = nil
		return next(ctx, r)
	}
	l := locker.New(s)
	defer l.Close()
	k := acquire(t, l, "a", locker.WithOwner("me"))
	(<-joined)()
	release(t, k)
}
