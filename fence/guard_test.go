package fence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/internal/guardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// number is a resource in memory.
type number struct {
	guard fence.Guard
	value int
}

func (n *number) Read(_ context.Context, lock fence.Lock) (value int, err error) {
	err = n.guard.Do(lock, func() error {
		value = n.value
		return nil
	})
	return value, err
}

func (n *number) Write(_ context.Context, lock fence.Lock, value int) error {
	return n.guard.Do(lock, func() error {
		n.value = value
		return nil
	})
}

func (n *number) Update(_ context.Context, lock fence.Lock, modify func(int) int) error {
	return n.guard.Do(lock, func() error {
		n.value = modify(n.value)
		return nil
	})
}

func (n *number) Peek(context.Context) (int, error) { return n.value, nil }

func TestGuard(t *testing.T) {
	l := locker.New(memory.New())
	t.Cleanup(func() { _ = l.Close() })
	guardtest.Run(t, l, func(*testing.T) guardtest.Resource { return new(number) })
}

func TestGuardReturnsWhatFnDoes(t *testing.T) {
	var g fence.Guard
	boom := errors.New("boom")
	if err := g.Do(fence.Token("a", 5), func() error { return boom }); err != boom { //nolint:errorlint // the very error
		t.Errorf("the error is %v", err)
	}
	if err := g.Do(fence.Token("a", 4), func() error { return nil }); !errors.Is(err, fence.ErrStale) {
		t.Errorf("after a failure the fence is down: %v", err)
	}
	if err := g.Do(fence.Token("a", 5), nil); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("no function: %v", err)
	}
	if err := g.Do(new(locker.Lock), func() error { return nil }); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("the zero Lock, which has no token: %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = g.Do(fence.Token("a", 6), func() error { panic("fn") })
	}()
	if err := g.Do(fence.Token("a", 6), func() error { return nil }); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// A holder that does not renew is overtaken when its lease ends, and refused.
func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer func() { _ = l.Close() }()
		var n number
		late, err := l.Acquire(t.Context(), "stock", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Write(t.Context(), late, 10); err != nil {
			t.Fatal(err)
		}
		next, err := l.Acquire(t.Context(), "stock") // after 10 s
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Update(t.Context(), next, func(v int) int { return v - 1 }); err != nil {
			t.Fatal(err)
		}
		if err := n.Write(t.Context(), late, 0); !errors.Is(err, fence.ErrStale) || n.value != 9 {
			t.Errorf("a late write is %v and left %d", err, n.value)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
