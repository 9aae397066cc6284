package locker_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// panicky is a Client on s with an observer that panics at the n-th event of a kind, once
// armed with n.
func panicky(s *stub, kind locker.EventKind) (l *locker.Client, armed *atomic.Int64) {
	armed = new(atomic.Int64)
	return locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == kind && armed.Add(-1) == 0 {
			panic("observer")
		}
	})), armed
}

// caught calls f, as a server does with the handler of a request, and reports whether it
// panicked.
func caught(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// An observer that panics, in a program that goes on, leaves no lock that nobody can
// release.
func TestPanicOfAnObserver(t *testing.T) {
	for _, c := range []struct {
		kind    locker.EventKind
		acquire func(l *locker.Client, outer *locker.Lock)
	}{
		{locker.EventAcquired, func(l *locker.Client, _ *locker.Lock) {
			_, _ = l.Acquire(context.Background(), "a", locker.WithOwner("me"))
		}},
		{locker.EventWaiting, func(l *locker.Client, _ *locker.Lock) {
			_, _ = l.Acquire(context.Background(), "b", locker.WithoutReentry())
		}},
		{locker.EventReentered, func(l *locker.Client, outer *locker.Lock) {
			_, _ = l.Acquire(outer.Context(context.Background()), "b")
		}},
		{locker.EventAcquired, func(l *locker.Client, _ *locker.Lock) {
			_, _ = locker.AcquireAll(context.Background(), l, []string{"a", "c"})
		}},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub()
				l, armed := panicky(s, c.kind)
				defer l.Close()
				outer := acquire(t, l, "b")
				armed.Store(1)
				if !caught(func() { c.acquire(l, outer) }) {
					t.Fatal("no panic")
				}
				release(t, outer)
				time.Sleep(time.Second)
				for _, name := range []string{"a", "b", "c"} {
					if n := s.queueLen(t, name); n != 0 {
						t.Errorf("%d tickets of %q are left", n, name)
					}
				}
				release(t, acquire(t, l, "a", locker.WithOwner("me"), locker.WithWait(time.Second)))
			})
		})
	}
}

// The members of a group that were acquired before the panic are released too.
func TestPanicInTheMiddleOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l, armed := panicky(s, locker.EventAcquired)
		defer l.Close()
		armed.Store(2)
		if !caught(func() { _, _ = locker.AcquireAll(t.Context(), l, []string{"a", "b"}) }) {
			t.Fatal("no panic")
		}
		time.Sleep(time.Second)
		if n := s.queueLen(t, "a") + s.queueLen(t, "b"); n != 0 {
			t.Errorf("%d tickets are left", n)
		}
	})
}

// A caller that has re-entered the lock meanwhile keeps it.
func TestPanicAfterAReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		var l *locker.Client
		var other *locker.Lock
		l = locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventAcquired {
				other = acquire(t, l, "a", locker.WithOwner("me")) // as another goroutine may
				panic("observer")
			}
		}))
		defer l.Close()
		if !caught(func() { _, _ = l.Acquire(context.Background(), "a", locker.WithOwner("me")) }) {
			t.Fatal("no panic")
		}
		time.Sleep(time.Second)
		if n := s.queueLen(t, "a"); n != 1 || other.Err() != nil {
			t.Errorf("%d tickets are left, and the other handle says %v", n, other.Err())
		}
		release(t, other)
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets are left after the release", n)
		}
	})
}

// A minimum hold is kept.
func TestPanicWithAMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l, armed := panicky(s, locker.EventAcquired)
		defer l.Close()
		armed.Store(1)
		if !caught(func() { _, _ = l.Acquire(context.Background(), "a", locker.WithMinHold(time.Minute)) }) {
			t.Fatal("no panic")
		}
		for after, want := range []int{1, 0} {
			time.Sleep(59*time.Second + time.Duration(after)*2*time.Second)
			if n := s.queueLen(t, "a"); n != want {
				t.Errorf("%d tickets, want %d", n, want)
			}
		}
	})
}

// What an observer has seen begin it sees end, though another one panics, before it or after it.
func TestEventsOfAPanic(t *testing.T) {
	for _, want := range [][]locker.EventKind{
		{locker.EventWaiting, locker.EventFailed},
		{locker.EventWaiting, locker.EventAcquired, locker.EventReleased},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var outer *locker.Lock
			seen := make([][]locker.EventKind, 2)
			armed := false
			note := func(i int) locker.ClientOption {
				return locker.WithObserver(func(_ context.Context, e locker.Event) {
					mu.Lock()
					defer mu.Unlock()
					if armed && e.Token != outer.Token() {
						seen[i] = append(seen[i], e.Kind)
					}
				})
			}
			l := locker.New(newStub(), note(0), locker.WithObserver(func(_ context.Context, e locker.Event) {
				if armed && e.Kind == want[len(want)-2] {
					panic("observer")
				}
			}), note(1))
			defer l.Close()
			outer = acquire(t, l, "a")
			armed = true
			time.AfterFunc(time.Second, func() { _ = outer.Release(context.Background()) })
			if !caught(func() { _, _ = l.Acquire(context.Background(), "a", locker.WithoutReentry()) }) {
				t.Fatal("no panic")
			}
			time.Sleep(2 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			for i := range seen {
				if !slices.Equal(seen[i], want) {
					t.Errorf("observer %d has seen %v, want %v", i, seen[i], want)
				}
			}
		})
	}
}

// Observers hear of every lock that Close has released, though one of them panics.
func TestPanicInCloseOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		panicked := false
		l := locker.New(newStub(), locker.WithObserver(func(ctx context.Context, e locker.Event) {
			seen.add(ctx, e)
			if e.Kind == locker.EventReleased && !panicked {
				panicked = true
				panic("observer")
			}
		}))
		for _, name := range []string{"a", "b", "c"} {
			acquire(t, l, name)
		}
		if !caught(func() { _ = l.Close() }) {
			t.Error("no panic")
		}
		synctest.Wait()
		if n := len(seen.of(locker.EventReleased)); n != 3 {
			t.Errorf("%d events of releases, want 3", n)
		}
	})
}
