package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := locker.New(s.Join())
		defer other.Close()
		free := func(name string) time.Duration {
			begun := time.Now()
			release(t, acquire(t, other, name))
			return time.Since(begun)
		}
		hold := locker.WithMinHold(time.Minute)
		l := locker.New(s)
		k := acquire(t, l, "released", hold, locker.WithTTL(10*time.Second))
		time.Sleep(20 * time.Second)
		release(t, k)
		want(t, k.Release(t.Context()), locker.ErrReleased)
		if d := free("released"); d != 40*time.Second {
			t.Errorf("free %v after a release at 20s, want 40s", d)
		}
		k = acquire(t, l, "long", hold, locker.WithTTL(10*time.Second))
		time.Sleep(10 * time.Minute)
		if err := k.Err(); err != nil {
			t.Errorf("not renewed after the minimum hold: %v", err)
		}
		release(t, k)
		if d := free("long"); d != 0 {
			t.Errorf("free %v after a release at 10m", d)
		}
		acquire(t, l, "closed", hold)
		begun := time.Now()
		if err := l.Close(); err != nil || time.Since(begun) != 0 {
			t.Errorf("Close took %v: %v", time.Since(begun), err)
		}
		if d := free("closed"); d != time.Minute {
			t.Errorf("free %v after Close, want 1m", d)
		}
	})
}

func TestMinHoldOfAClientThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func() *locker.Client {
			l, err := locker.Open(t.Context(), "memory://min-hold")
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := open()
		release(t, acquire(t, l, "a", locker.WithMinHold(time.Minute)))
		_ = l.Close()
		l = open()
		defer l.Close()
		begun := time.Now()
		release(t, acquire(t, l, "a", locker.WithMinHold(time.Second)))
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("granted again after %v", d)
		}
	})
}

// A Client that is closed within the safety margin of its lost lease leaves the minimum hold.
func TestMinHoldOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := locker.New(s.Join())
		defer other.Close()
		l := locker.New(s, locker.WithSafetyMargin(10*time.Second))
		begun := time.Now()
		<-acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithoutRenewal()).Done()
		if d := time.Since(begun); d != 50*time.Second {
			t.Errorf("lost after %v, want 50s", d)
		}
		want(t, l.Close(), nil)
		release(t, acquire(t, other, "a"))
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("granted again after %v", d)
		}
	})
}

// A ticket whose minimum hold is over, and that an outage has kept, has its last try when the Client is closed.
func TestMinHoldIsOverWhenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		k := acquire(t, l, "a", locker.WithMinHold(time.Second))
		want(t, k.Release(context.Background()), nil)
		s.set(func(s *stub) {
			s.release = func(context.Context, driver.Hold, releaseFunc) error { return errDown }
		})
		time.Sleep(1500 * time.Millisecond)
		removed := false
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				err := next(ctx, h)
				removed = err == nil
				return err
			}
		})
		want(t, l.Close(), nil)
		if !removed {
			t.Error("the ticket is left")
		}
	})
}

func TestMinHoldLimits(t *testing.T) {
	s := &limited{newStub()}
	l := locker.New(s)
	defer l.Close()
	_, err := l.Acquire(t.Context(), "a", locker.WithMinHold(2*time.Minute))
	want(t, err, locker.ErrUnsupported)
	if n := s.queueLen(t, "a"); n != 0 {
		t.Errorf("%d tickets", n)
	}
	k := acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithOwner("me"))
	_, err = l.Acquire(t.Context(), "a", locker.WithMinHold(2*time.Minute), locker.WithOwner("me"))
	want(t, err, locker.ErrInvalidOption)
	release(t, acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithOwner("me")))
	release(t, k)
}

type limited struct{ *stub }

func (*limited) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MaxTTL: time.Minute, Crash: ttl}
}

// A provisional lease becomes the minimum hold at once.
func TestMinHoldOfAProvisionalLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			r.TTL = 3 * time.Second
			g, err := next(ctx, r)
			g.Claim = 3 * time.Second
			return g, err
		}
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithTTL(10*time.Second))
		synctest.Wait()
		q, _ := l.Inspect(t.Context(), "a")
		if r := q.Tickets[0].Remaining; r < 59*time.Second {
			t.Errorf("the lease has %v left, want the minimum hold", r)
		}
	})
}
