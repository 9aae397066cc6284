package locker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// On a store whose lease outlasts its validity (a session, a long minimum TTL) the
// ticket is removed when the caller's lease is over, and not before.
func TestLeaseThatOutlastsItsValidityIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sessions{stub: newStub()}
		l, other := locker.New(s), locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		begun := time.Now()
		acquire(t, l, "a", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
		acquire(t, other, "a")
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("next grant after %v, want 2s", d)
		}
	})
}

// sessions gives no lease shorter than a minute.
type sessions struct{ *stub }

func (*sessions) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MinTTL: time.Minute, Crash: max(ttl, time.Minute)}
}

// The lease of a shared session began before the acquisition. A caller that wants a
// shorter lease gets its whole length, if the rest of the session's is long enough.
func TestShortLeaseOnAnOldSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sessions{stub: newStub()}
		age := 20 * time.Second
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			g.Asked = g.Asked.Add(-age)
			return g, err
		}
		l := locker.New(s, locker.WithSafetyMargin(0))
		defer l.Close()
		validFor := func() time.Duration {
			begun := time.Now()
			k := acquire(t, l, "a", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
			<-k.Done()
			return time.Since(begun)
		}
		if d := validFor(); d != 2*time.Second {
			t.Errorf("valid for %v of 2s", d)
		}
		age = 59 * time.Second // of the session's minute
		if d := validFor(); d != time.Second {
			t.Errorf("valid for %v, the session has 1s left", d)
		}
	})
}

// A provisional lease is renewed for the whole TTL in time; a fixed one, at once. If
// the renewal fails, the validity ends with the provisional lease. A short hold costs
// no renewal.
func TestProvisionalLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			g.Claim = 3 * time.Second
			return g, err
		}
		l := locker.New(s, locker.WithSafetyMargin(0))
		defer l.Close()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second), locker.WithoutRenewal())
		<-k.Done()
		if at := s.renewals(); time.Since(begun) != 9*time.Second || len(at) != 1 || !at[0].Equal(begun) {
			t.Errorf("a fixed lease of 9s ended after %v, renewed at %v", time.Since(begun), at)
		}

		begun = time.Now()
		k = acquire(t, l, "b", locker.WithTTL(9*time.Second))
		time.Sleep(999 * time.Millisecond)
		if n := len(s.renewals()); n != 1 {
			t.Errorf("%d renewals of a short hold", n-1)
		}
		time.Sleep(10 * time.Second)
		if at := s.renewals()[1:]; len(at) != 4 || at[0].Sub(begun) != time.Second || at[1].Sub(begun) != 4*time.Second {
			t.Errorf("renewals %v after %v, want after 1s and every 3s then", at, begun)
		}
		release(t, k)

		s.set(func(s *stub) {
			s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
		})
		begun = time.Now()
		<-acquire(t, l, "c", locker.WithTTL(9*time.Second)).Done()
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("a provisional lease of 3s was valid for %v", d)
		}
	})
}

// A short Extend of a provisional lease asks for the whole TTL: the store gives a lease that it
// has not confirmed what it is asked for, and the holder was promised more.
func TestExtendOfAProvisionalLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			g.Claim = 3 * time.Second
			return g, err
		}
		var asked []time.Duration
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			asked = append(asked, r.TTL)
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		for range 2 {
			if err := k.Extend(t.Context(), 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		if want := []time.Duration{9 * time.Second, 10 * time.Millisecond}; !slices.Equal(asked, want) {
			t.Errorf("asked for %v, want %v", asked, want)
		}
		release(t, k)
	})
}

// If the safety margin is longer than a provisional lease, the lease is renewed before
// the call returns.
func TestSafetyMarginOfAProvisionalLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		tickets := 0
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			tickets++
			g, err := next(ctx, r)
			g.Claim = 3 * time.Second
			return g, err
		}
		l := locker.New(s, locker.WithSafetyMargin(4*time.Second))
		defer l.Close()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(9*time.Second))
		if n := len(s.renewals()); n != 1 || tickets != 1 {
			t.Fatalf("%d tickets, %d renewals; want one of each", tickets, n)
		}
		s.set(func(s *stub) {
			s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
		})
		<-k.Done()
		if d := time.Since(begun); d != 5*time.Second {
			t.Errorf("a lease of 9s with a margin of 4s was valid for %v", d)
		}
	})
}

// If a provisional lease is over before it is renewed, the store may keep the ticket. It is
// removed, and does not block the next ticket of the same call.
func TestProvisionalLeaseThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharing()
		next := s.acquire
		s.acquire = func(ctx context.Context, r driver.Request, grant acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r, grant)
			g.Claim = 3 * time.Second
			return g, err
		}
		over := true
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			if over {
				over = false
				return driver.ErrLost
			}
			return next(ctx, r)
		}
		l := locker.New(s, locker.WithSafetyMargin(4*time.Second))
		defer l.Close()
		release(t, acquire(t, l, "a", locker.WithTTL(9*time.Second), locker.WithWait(5*time.Second)))
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets are left", n)
		}
	})
}

// A safety margin as long as the leases of a store is an error, not a lock that is lost
// at once.
func TestSafetyMarginOfAStoreWithShortLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			g.TTL = 3 * time.Second
			return g, err
		}
		l := locker.New(s, locker.WithSafetyMargin(4*time.Second))
		defer l.Close()
		_, err := l.Acquire(t.Context(), "a", locker.WithTTL(9*time.Second))
		want(t, err, locker.ErrUnsupported)
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets are left", n)
		}
	})
}

// A fixed lease that is longer than the store's is renewed until its end, and valid
// no longer than the store's after each renewal.
func TestFixedLeaseLongerThanTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			g.TTL = 3 * time.Second
			return g, err
		}
		l := locker.New(s, locker.WithSafetyMargin(0))
		defer l.Close()
		fixed := []locker.Option{locker.WithTTL(10 * time.Second), locker.WithoutRenewal()}
		begun := time.Now()
		<-acquire(t, l, "a", fixed...).Done()
		if d := time.Since(begun); d != 10*time.Second {
			t.Errorf("a fixed lease of 10s ended after %v", d)
		}
		begun = time.Now()
		k := acquire(t, l, "b", fixed...)
		s.set(func(s *stub) {
			s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
		})
		<-k.Done()
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("valid for %v without a renewal, the store's lease is 3s", d)
		}
	})
}

// A renewal of a fixed lease asks for no more than what is left of it: the store would keep it, and show it, beyond its
// end.
func TestFixedLeaseAsksForWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			g.TTL = 3 * time.Second
			return g, err
		}
		begun, renewals := time.Now(), 0
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			renewals++
			if end := time.Since(begun) + r.TTL; end > ttl || r.TTL <= 0 {
				t.Errorf("%v after the grant, a renewal asks for %v", time.Since(begun), r.TTL)
			}
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		<-acquire(t, l, "a", locker.WithTTL(ttl), locker.WithoutRenewal()).Done()
		if d := time.Since(begun); d > ttl || d < ttl-time.Second || renewals == 0 {
			t.Errorf("ended after %v and %d renewals", d, renewals)
		}
	})
}

// The store keeps a fixed lease that is longer than its own for its whole TTL, whatever the
// safety margin is, and is not asked more often for that.
func TestFixedLeaseLastsInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			if !r.Renewed {
				r.TTL = 3 * time.Minute
			}
			g, err := next(ctx, r)
			g.TTL = 3 * time.Minute
			return g, err
		}
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			r.TTL = 3 * time.Minute
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		other := locker.New(s.Join())
		defer other.Close()
		begun := time.Now()
		k := acquire(t, l, "a", locker.WithTTL(100*time.Minute), locker.WithoutRenewal())
		next := make(chan time.Duration)
		go func() {
			release(t, acquire(t, other, "a"))
			next <- time.Since(begun)
		}()
		<-k.Done()
		if d := time.Since(begun); d < 99*time.Minute || d >= 100*time.Minute {
			t.Errorf("valid for %v", d)
		}
		if d := <-next; d < 100*time.Minute || d > 101*time.Minute {
			t.Errorf("granted to the next after %v", d)
		}
		if n := len(s.renewals()); n > 110 {
			t.Errorf("%d renewals in 100 minutes of leases of 3", n)
		}
	})
}

// A store that gives shorter leases need not say so in the grant, if its bounds do.
func TestBoundsShortenALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &limited{newStub()}
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			r.TTL = min(r.TTL, time.Minute)
			return next(ctx, r)
		}
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			r.TTL = min(r.TTL, time.Minute)
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(time.Hour))
		time.Sleep(3 * time.Hour)
		want(t, k.Err(), nil)
		s.set(func(s *stub) {
			s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
		})
		begun := time.Now()
		<-k.Done()
		if d := time.Since(begun); d > time.Minute {
			t.Errorf("valid for %v without a renewal, the store's lease is 1m", d)
		}
	})
}

// A lease that is extended beyond the longest that its ticket can have is renewed until its end, however short
// its TTL is, and whatever other tickets can have. It is valid no longer than its ticket's after each renewal.
func TestExtendedBeyondTheTickets(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 10 * time.Second} {
		for _, extended := range []time.Duration{50 * time.Second, 5 * time.Minute} {
			for _, fixed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v, extended to %v, fixed %v", ttl, extended, fixed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { extendedBeyondTheTickets(t, ttl, extended, fixed) })
				})
			}
		}
	}
}

// An extended lease is renewed for as long as the ticket's can be, however short the TTL is: an outage that is
// shorter costs nothing.
func TestExtendedBeyondTheTicketsInAnOutage(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				r.TTL = 10 * time.Second // a session's
				g, err := next(ctx, r)
				g.TTL = 10 * time.Second
				return g, err
			}
			renewals := 0
			s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
				renewals++
				r.TTL = 10 * time.Second
				return next(ctx, r)
			}
			opts := []locker.Option{locker.WithTTL(time.Second)}
			if fixed {
				opts = append(opts, locker.WithoutRenewal())
			}
			l := locker.New(s)
			defer l.Close()
			k := acquire(t, l, "a", opts...)
			want(t, k.Extend(t.Context(), 5*time.Minute), nil)
			time.Sleep(20 * time.Second)
			if d := time.Until(k.Deadline()); d < 6*time.Second {
				t.Errorf("fixed %v: valid for %v after 20 seconds, the ticket's lease is 10s", fixed, d)
			}
			if renewals > 10 {
				t.Errorf("fixed %v: %d renewals in 20 seconds", fixed, renewals)
			}
			release(t, k)
		})
	}
}

func extendedBeyondTheTickets(t *testing.T, ttl, extended time.Duration, fixed bool) {
	const longest = 10 * time.Second
	s := &limited{newStub()} // to a minute
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		g, err := next(ctx, r)
		g.TTL = longest
		return g, err
	}
	opts := []locker.Option{locker.WithTTL(ttl)}
	if fixed {
		opts = append(opts, locker.WithoutRenewal())
	}
	l := locker.New(s, locker.WithSafetyMargin(0))
	defer l.Close()
	begun := time.Now()
	k := acquire(t, l, "a", opts...)
	want(t, k.Extend(t.Context(), extended), nil)
	if fixed {
		<-k.Done()
		if d := time.Since(begun); d != extended {
			t.Errorf("ended after %v, extended to %v", d, extended)
		}
	} else {
		time.Sleep(extended)
		release(t, k)
	}
	k = acquire(t, l, "b", opts...)
	want(t, k.Extend(t.Context(), extended), nil)
	begun = time.Now()
	if d := k.Deadline().Sub(begun); d > longest {
		t.Errorf("trusted for %v", d)
	}
	s.set(func(s *stub) {
		s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
	})
	<-k.Done()
	if d := time.Since(begun); d != longest {
		t.Errorf("valid for %v without a renewal, the ticket's lease is %v", d, longest)
	}
}

// A fixed lease that is longer than the store's, and re-enters a renewed one, is renewed until its
// end when the renewed handle is released.
func TestLongFixedReentryOfARenewedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &limited{newStub()} // to a minute
		l := locker.New(s, locker.WithSafetyMargin(0))
		defer l.Close()
		begun := time.Now()
		outer := acquire(t, l, "a", locker.WithTTL(30*time.Second))
		inner, err := l.Acquire(outer.Context(t.Context()), "a", locker.WithTTL(5*time.Minute), locker.WithoutRenewal())
		want(t, err, nil)
		time.Sleep(5 * time.Second)
		release(t, outer)
		<-inner.Done()
		if d := time.Since(begun); d < 5*time.Minute {
			t.Errorf("a fixed lease of 5m ended after %v", d)
		}
	})
}
