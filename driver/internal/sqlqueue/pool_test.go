package sqlqueue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A fakePool has one connection, and may open another one. A connection is the number of those that were opened before it.
type fakePool struct {
	free   chan struct{}
	opened atomic.Int64
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
			f.open.Add(1)
			return int(f.opened.Add(1)), nil
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
			swept <- p.Use(context.WithValue(ctx, haste{}, sweeping), func(int) error { return nil })
		}()
		for range 5 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if f.opened.Load() != 1 || f.open.Load() != 0 {
			t.Errorf("%d were opened, and %d are open", f.opened.Load(), f.open.Load())
		}
		if err := <-swept; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a sweep without a connection of the pool: %v", err)
		}
	})
}

// A request for a ticket, which may wait in the database for as long as its caller does, and others that wait for its connection,
// hold up neither renewals nor heartbeats.
func TestRenewalBesideARequestThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFakePool()
		<-f.free
		quick := func(ctx context.Context) error { return p.Use(ctx, func(int) error { return nil }) }
		s := &fakeStore{renew: quick}
		s.take = func(until int64) (Answer, error) {
			err := p.Use(t.Context(), func(int) error { time.Sleep(10 * time.Second); return nil })
			return Answer{Sent: time.Now(), Result: Granted, Token: 1}, err
		}
		e := newEngine(t, Options{Store: s, Liveness: 4 * time.Second})
		var acquiring sync.WaitGroup
		for range 3 {
			acquiring.Go(func() { _, _ = e.Acquire(t.Context(), driver.Request{Name: "a", TTL: time.Minute}) })
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Renew(ctx, driver.Hold{Name: "b", ID: "b", Token: 1}, time.Minute); err != nil {
			t.Errorf("a renewal: %v", err)
		}
		ctx, cancel = e.bound(t.Context())
		defer cancel()
		if err := quick(ctx); err != nil {
			t.Errorf("a heartbeat: %v", err)
		}
		if n := f.open.Load(); n != 1 {
			t.Errorf("%d connections are open", n)
		}
		acquiring.Wait()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d connections are open afterwards", n)
		}
	})
}
