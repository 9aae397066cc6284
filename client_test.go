package locker_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

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

func TestPing(t *testing.T) {
	l := locker.New(memory.New())
	if err := l.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	want(t, l.Ping(context.Background()), locker.ErrClosed)
	p := locker.New(&pinged{Driver: memory.New(), err: errRefused})
	defer p.Close()
	err := p.Ping(context.Background())
	want(t, err, locker.ErrUnavailable)
	want(t, err, syscall.ECONNREFUSED)
}

type pinged struct {
	*memory.Driver
	err error
}

func (p *pinged) Ping(context.Context) error { return p.err }

// Close tries once more to remove the tickets of expired leases too.
func TestCloseRemovesWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		other := s.Join()
		defer other.Close()
		l := locker.New(s)
		back := s.away(errDown)
		k := acquire(t, l, "a", locker.WithTTL(time.Second), locker.WithoutRenewal())
		<-k.Done()
		time.Sleep(10 * time.Second)
		time.AfterFunc(time.Second, back)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if q, _ := other.Inspect(context.Background(), "a"); len(q) != 0 {
			t.Errorf("left in the store: %v", q)
		}
	})
}

// Close is bounded, and immediate when there is nothing to remove, whatever
// requests are under way.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s := newStub()
		s.acquire = func(ctx context.Context, _ driver.Request, _ acquireFunc) (driver.Grant, error) {
			return driver.Grant{}, driver.NoTicket(hang(ctx))
		}
		l := locker.New(s)
		failed := make(chan error, 1)
		go func() { failed <- l.Ping(context.Background()) }()
		go func() { _, _ = l.Acquire(context.Background(), "a") }()
		synctest.Wait()
		begun := time.Now()
		if err := l.Close(); err != nil || time.Since(begun) != 0 {
			t.Errorf("Close with nothing to remove took %v: %v", time.Since(begun), err)
		}

		s = newStub()
		l = locker.New(s)
		acquire(t, l, "a")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error { return hang(ctx) }
		})
		begun = time.Now()
		want(t, l.Close(), locker.ErrUnavailable)
		if d := time.Since(begun); d > 5100*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
	})
}

// A grant that arrives after Close has begun is not kept.
func TestGrantAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := s.Join()
		defer other.Close()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return g, err
		}
		l := locker.New(s)
		failed := make(chan error, 1)
		go func() {
			_, err := l.Acquire(context.Background(), "a")
			failed <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		want(t, <-failed, locker.ErrClosed)
		if q, _ := other.Inspect(context.Background(), "a"); len(q) != 0 {
			t.Errorf("left in the store: %v", q)
		}
	})
}
