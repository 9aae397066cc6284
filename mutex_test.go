package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// bound is one way to acquire a name, waiting, trying and around a function.
type bound struct {
	acquire, try func(context.Context, ...locker.Option) (*locker.Lock, error)
	do           func(context.Context, func(context.Context) error, ...locker.Option) error
}

func writers(m *locker.RWMutex) bound { return bound{m.Lock, m.TryLock, m.Do} }
func readers(m *locker.RWMutex) bound { return bound{m.RLock, m.TryRLock, m.RDo} }
func permits(s *locker.Semaphore) bound {
	return bound{s.Acquire, s.TryAcquire, s.Do}
}

// Which locks exclude which, in each of the three ways to acquire them, also when the
// Client's defaults are others.
func TestBoundLocks(t *testing.T) {
	for _, defaults := range []locker.Option{nil, locker.Shared(), locker.Limit(2)} {
		l := locker.New(memory.New(), locker.WithDefaults(defaults))
		t.Cleanup(func() { _ = l.Close() })
		mutex := locker.NewMutex(l, "mutex")
		rw := locker.NewRWMutex(l, "rw")
		sem := locker.NewSemaphore(l, "sem", 2)
		lock := bound{mutex.Lock, mutex.TryLock, mutex.Do}
		for _, c := range []struct {
			name   string
			holds  []bound
			wants  bound
			denied bool
		}{
			{"mutex, free", nil, lock, false},
			{"mutex, held", []bound{lock}, lock, true},
			{"reader beside readers", []bound{readers(rw), readers(rw), readers(rw)}, readers(rw), false},
			{"reader beside a writer", []bound{writers(rw)}, readers(rw), true},
			{"writer beside a reader", []bound{readers(rw)}, writers(rw), true},
			{"writer beside a writer", []bound{writers(rw)}, writers(rw), true},
			{"second permit", []bound{permits(sem)}, permits(sem), false},
			{"third permit", []bound{permits(sem), permits(sem)}, permits(sem), true},
		} {
			t.Run(c.name, func(t *testing.T) { testBound(t, c.holds, c.wants, c.denied) })
		}
	}
}

func testBound(t *testing.T, holds []bound, wants bound, denied bool) {
	ctx := t.Context()
	for _, h := range holds {
		k, err := h.acquire(ctx, locker.WithWait(0))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = k.Release(ctx) }()
	}
	ran := false
	var errs [3]error
	var k *locker.Lock
	if k, errs[0] = wants.try(ctx); errs[0] == nil {
		errs[0] = k.Release(ctx)
	}
	if k, errs[1] = wants.acquire(ctx, locker.WithWait(0)); errs[1] == nil {
		errs[1] = k.Release(ctx)
	}
	errs[2] = wants.do(ctx, func(ctx context.Context) error {
		ran = true
		if _, ok := locker.FromContext(ctx); !ok {
			t.Error("no lock in the context of Do")
		}
		return nil
	}, locker.WithWait(0))
	for i, err := range errs {
		if denied != errors.Is(err, locker.ErrNotAcquired) || !denied && err != nil {
			t.Errorf("way %d: %v; denied should be %t", i, err, denied)
		}
	}
	if ran == denied {
		t.Errorf("Do has run its function: %t", ran)
	}
}

// The options of the constructor apply to every call; those of the call come after
// them.
func TestBoundOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		opts := []locker.Option{nil, locker.WithNote("bound"), locker.WithTTL(time.Minute)}
		m := locker.NewMutex(l, "a", opts...)
		opts[1] = locker.WithNote("changed later")
		k, err := m.Lock(t.Context(), locker.WithTTL(time.Hour), locker.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		q, err := l.Inspect(t.Context(), m.Name())
		if err != nil || len(q.Tickets) != 1 || q.Tickets[0].Note != "bound" || q.Tickets[0].Remaining != time.Hour {
			t.Errorf("the queue is %+v, %v", q, err)
		}
		if _, err := m.Lock(t.Context(), locker.WithWait(time.Minute)); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("a second Lock: %v", err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBoundBadInput(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	for _, c := range []struct {
		what string
		b    bound
		opt  locker.Option
		want error
	}{
		{"shared writer", writers(locker.NewRWMutex(l, "a")), locker.Shared(), locker.ErrInvalidOption},
		{"shared writer", writers(locker.NewRWMutex(l, "a", locker.Shared())), nil, locker.ErrInvalidOption},
		{"limited reader", readers(locker.NewRWMutex(l, "a", locker.Limit(2))), nil, locker.ErrInvalidOption},
		{"another limit", permits(locker.NewSemaphore(l, "a", 2)), locker.Limit(3), locker.ErrInvalidOption},
		{"no permits", permits(locker.NewSemaphore(l, "a", 0)), nil, locker.ErrInvalidOption},
		{"TTL", permits(locker.NewSemaphore(l, "a", 1, locker.WithTTL(-1))), nil, locker.ErrInvalidOption},
		{"name", writers(locker.NewRWMutex(l, "")), nil, locker.ErrInvalidName},
	} {
		_, err := c.b.acquire(t.Context(), c.opt)
		_, tried := c.b.try(t.Context(), c.opt)
		done := c.b.do(t.Context(), func(context.Context) error { t.Error("the function has run"); return nil }, c.opt)
		for _, err := range []error{err, tried, done} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for a nil Locker")
		}
	}()
	locker.NewMutex(nil, "a")
}
