package sqlqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A fakePool has one connection, and may open another one. A connection is the number of those that were opened before it.
type fakePool struct {
	free   chan struct{}
	opened int
	open   atomic.Int64
	panics bool // in the user's code that opens a connection
}

func newFakePool() (*fakePool, *Pool[int]) {
	f := &fakePool{free: make(chan struct{}, 1)}
	f.free <- struct{}{}
	return f, NewPool(Pool[int]{
		Get: func(ctx context.Context) (int, func(), error) {
			select {
			case <-f.free:
				return 0, func() { f.free <- struct{}{} }, nil
			case <-ctx.Done():
				return 0, nil, ctx.Err()
			}
		},
		Open: func(context.Context) (int, error) {
			if f.panics {
				panic("the user's")
			}
			f.opened++
			f.open.Add(1)
			return f.opened, nil
		},
		Close:   func(int) { f.open.Add(-1) },
		IsAlive: func(int) bool { return true },
	})
}

// panics calls f, which has to panic.
func panics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("there was no panic")
		}
	}()
	f()
}

// After a panic in the user's code, which a connection runs (tracers, hooks, dialers), the connection is free again.
func TestPanicFreesAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFakePool()
		use := func() (c int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := p.Use(ctx, func(got int) error { c = got; return nil }); err != nil {
				t.Error(err)
			}
			return c
		}
		panics(t, func() { _ = p.Use(t.Context(), func(int) error { panic("the user's") }) })
		if c := use(); c != 0 {
			t.Error("that of the pool is in use")
		}
		<-f.free // somebody else has it
		panics(t, func() { _ = p.Use(t.Context(), func(int) error { panic("the user's") }) })
		f.panics = true
		panics(t, func() { _ = p.Use(t.Context(), func(int) error { return nil }) })
		f.panics = false
		if c := use(); c != 2 || f.open.Load() != 0 {
			t.Errorf("connection %d beside the pool was used, and %d are open", c, f.open.Load())
		}
	})
}

// Requests that wait for the connection beside the pool get it from the one before. A sweep does not.
func TestConnectionBesideThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFakePool()
		<-f.free
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ended := make(chan error, 6)
		for range 5 {
			go func() {
				ended <- p.Use(ctx, func(c int) error {
					if c != 1 {
						t.Errorf("connection %d", c)
					}
					time.Sleep(time.Second)
					return nil
				})
			}()
		}
		swept := make(chan error, 1)
		go func() {
			swept <- p.Use(context.WithValue(ctx, sweeping{}, true), func(int) error { return nil })
		}()
		for range 5 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if f.opened != 1 || f.open.Load() != 0 {
			t.Errorf("%d were opened, and %d are open", f.opened, f.open.Load())
		}
		if err := <-swept; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a sweep without a connection of the pool: %v", err)
		}
	})
}
