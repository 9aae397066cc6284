package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
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
		q, _ := l.Inspect(t.Context(), "a")
		if r := q.Tickets[0].Remaining; r < 59*time.Second {
			t.Errorf("the lease has %v left, want the minimum hold", r)
		}
	})
}

// Close ends a minimum hold when it is over, however long the lease is.
func TestCloseShortensTheLease(t *testing.T) {
	for what, before := range map[string]func(t *testing.T, k *locker.Lock){
		"held":     func(*testing.T, *locker.Lock) {},
		"renewed":  func(*testing.T, *locker.Lock) { time.Sleep(50 * time.Second) },
		"released": func(t *testing.T, k *locker.Lock) { release(t, k) },
		"extended": func(t *testing.T, k *locker.Lock) { want(t, k.Extend(t.Context(), time.Hour), nil) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub()
				other := locker.New(s.Join())
				defer other.Close()
				l := locker.New(s)
				begun := time.Now()
				before(t, acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithTTL(2*time.Minute)))
				want(t, l.Close(), nil)
				release(t, acquire(t, other, "a"))
				if d := time.Since(begun); d != time.Minute {
					t.Errorf("free after %v, want the minimum hold of 1m", d)
				}
			})
		})
	}
}

// Close asks again if the store does not answer, for what is left of the hold by then, until
// its own bound.
func TestCloseAsksAgainToShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &forgetful{stub: newStub(), unanswered: 3}
		other := locker.New(s.Join())
		defer other.Close()
		l := locker.New(s)
		begun := time.Now()
		acquire(t, l, "a", locker.WithMinHold(10*time.Second), locker.WithTTL(time.Minute))
		want(t, l.Close(), nil)
		if d := time.Since(begun); d > 4*time.Second {
			t.Errorf("Close took %v", d)
		}
		release(t, acquire(t, other, "a"))
		if d := time.Since(begun); d != 10*time.Second {
			t.Errorf("free after %v, want 10s", d)
		}

		s = &forgetful{stub: newStub(), unanswered: 1000}
		l = locker.New(s)
		begun = time.Now()
		acquire(t, l, "a", locker.WithMinHold(time.Minute))
		_ = l.Close()
		if d := time.Since(begun); d > locker.DefaultReleaseTimeout+100*time.Millisecond {
			t.Errorf("Close took %v on a store that does not answer", d)
		}
	})
}

// forgetful does not answer the first requests to shorten a lease.
type forgetful struct {
	*stub
	unanswered int
}

func (f *forgetful) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	if f.unanswered--; f.unanswered >= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.stub.Shorten(ctx, h, left)
}

// A store that cannot shorten a lease keeps it for its TTL, and Close does not wait.
func TestCloseOfAStoreThatCannotShorten(t *testing.T) {
	for what, d := range map[string]func() driver.Driver{
		"no Shortener": func() driver.Driver { return onlyDriver{memory.New()} },
		"a wrapper":    func() driver.Driver { return cannotShorten{onlyDriver{memory.New()}} },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locker.New(d())
				begun := time.Now()
				acquire(t, l, "a", locker.WithMinHold(time.Second))
				want(t, l.Close(), nil)
				if d := time.Since(begun); d != 0 {
					t.Errorf("Close took %v", d)
				}
			})
		})
	}
}

// onlyDriver hides the optional interfaces.
type onlyDriver struct{ driver.Driver }

type cannotShorten struct{ onlyDriver }

func (cannotShorten) Shorten(context.Context, driver.Hold, time.Duration) error {
	return driver.ErrUnsupported
}

// What the store leaves without an answer does not keep Close from shortening another lease.
func TestMinHoldBesideAnUnansweredReleaseAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := locker.New(s.Join())
		defer other.Close()
		l := locker.New(s)
		s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			if h.Name != "stuck" {
				return next(ctx, h)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		want(t, acquire(t, l, "stuck").Release(t.Context()), locker.ErrUnavailable)
		begun := time.Now()
		acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithTTL(time.Hour))
		_ = l.Close()
		release(t, acquire(t, other, "a"))
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("free after %v, want the minimum hold of 1m", d)
		}
	})
}

// Nor does it keep a minimum hold from ending.
func TestMinHoldBesideUnansweredReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				if h.Name == "a" {
					return next(ctx, h)
				}
				<-ctx.Done()
				return ctx.Err()
			}
		})
		names := make([]string, 100)
		for i := range names {
			names[i] = "stuck-" + string(rune('0'+i/10)) + string(rune('0'+i%10))
		}
		group, err := locker.AcquireAll(t.Context(), l, names)
		want(t, err, nil)
		want(t, group.Release(t.Context()), locker.ErrUnavailable)
		release(t, acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithTTL(time.Hour)))
		time.Sleep(time.Minute + 5*time.Second)
		if n := s.queueLen(t, "a"); n != 0 {
			t.Error("held 5s after the end of its minimum hold, though the store answers for this name")
		}
		s.set(func(s *stub) { s.release = nil })
		want(t, l.Close(), nil)
	})
}
