package kvqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// What a renewal is answered when the store does not do it. Whoever is told that it was done relies on the lease.
func TestUndoneRenewals(t *testing.T) {
	lost := func(err error) bool { return errors.Is(err, driver.ErrLost) }
	unknown := func(err error) bool { return err != nil && !errors.Is(err, driver.ErrLost) }
	for _, test := range []struct {
		what  string
		begin func(b *bed) driver.Hold // of the ticket to renew, beside another one on its session
		right func(error) bool
		other func(error) bool // of the answer for the other one
	}{
		{"no answer to the keep-alive", func(b *bed) driver.Hold {
			h := b.get(b.e, request("a", "1"))
			b.fail("keep", errFakeBusy)
			return h
		}, unknown, unknown},
		{"no answer to what is looked for", func(b *bed) driver.Hold {
			h := b.get(b.e, request("a", "1"))
			b.fail("missing", errFakeBusy)
			return h
		}, unknown, unknown},
		{"the session has ended", func(b *bed) driver.Hold {
			h := b.get(b.e, request("a", "1"))
			_ = b.store.End(b.Context(), "s1")
			return h
		}, lost, lost},
		{"the session ends meanwhile", func(b *bed) driver.Hold {
			h := b.get(b.e, request("a", "1"))
			b.store.with(func(what, _ string, done bool) error {
				if what == "missing" && done {
					_ = b.store.End(b.Context(), "s1")
					b.over("s1")
				}
				return nil
			})
			return h
		}, lost, lost},
		{"the ticket was removed", func(b *bed) driver.Hold {
			h := b.get(b.e, request("a", "1"))
			b.store.strike("a", "1")
			return h
		}, lost, nil},
		{"it waits", func(b *bed) driver.Hold {
			b.get(b.another(), request("a", "0"))
			return b.wait(b.e, request("a", "1")).r.Hold(0)
		}, lost, nil},
		{"its release was not answered", func(b *bed) driver.Hold {
			h := b.get(b.e, request("a", "1"))
			b.fail("delete", errFakeLost)
			_ = b.e.Release(b.Context(), h)
			return h
		}, unknown, nil},
		{"its put was not answered", func(b *bed) driver.Hold {
			b.store.with(func(what, _ string, done bool) error {
				if what == "put" && done {
					return errFakeLost
				}
				return nil
			})
			_, _ = b.e.Acquire(b.Context(), request("a", "1"))
			b.store.with(nil)
			return driver.Hold{Name: "a", ID: "1"}
		}, unknown, nil},
		{"nobody knows it", func(*bed) driver.Hold { return driver.Hold{Name: "a", ID: "1"} }, lost, nil},
		{"it is another's", func(b *bed) driver.Hold { return b.get(b.another(), request("a", "1")) }, unknown, nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.store.unwatched = true
				other := b.get(b.e, request("b", "x"))
				h := test.begin(b)
				errs := b.e.RenewAll(b.Context(), []driver.Renewal{{Hold: h, TTL: time.Minute}, {Hold: other, TTL: time.Minute}})
				if !test.right(errs[0]) {
					t.Errorf("answer: %v", errs[0])
				}
				if right := test.other; right == nil && errs[1] != nil || right != nil && !right(errs[1]) {
					t.Errorf("answer for the other ticket of the session: %v", errs[1])
				}
			})
		})
	}
}

// fail makes a kind of request fail, before the store does it.
func (b *bed) fail(request string, err error) {
	b.store.with(func(what, _ string, done bool) error {
		if what == request && !done {
			return err
		}
		return nil
	})
}

// A session that does not answer delays the renewal of others by a third of the shortest.
func TestRenewalsOfTwoSessions(t *testing.T) {
	for _, ttls := range [][]time.Duration{{30 * time.Second, time.Minute}, {time.Minute, 30 * time.Second}} {
		inBubble(t, func(b *bed) {
			var rs []driver.Renewal
			for i, ttl := range ttls {
				r := request("a", string(rune('0'+i)))
				r.TTL, r.Shared = ttl, true
				rs = append(rs, driver.Renewal{Hold: b.get(b.e, r), TTL: ttl})
			}
			b.store.with(func(what, session string, done bool) error {
				if what == "keep" && session == "s1" && !done {
					return errFakeHangs
				}
				return nil
			})
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			begun := time.Now()
			errs := b.e.RenewAll(ctx, rs)
			if took := time.Since(begun); errs[0] == nil || errs[1] != nil || took != 10*time.Second {
				t.Errorf("after %v: %v", took, errs)
			}
		})
	}
}

// A renewal for less than is left of a lease that nobody renews on schedule does not shorten it.
func TestRenewalDoesNotShorten(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, unrenewed("a", "1", 30*time.Second))
		for range 4 { // of the lease, which ends after 30s
			if err := b.e.Renew(b.Context(), h, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second)
		}
	})
}

// After Close no ticket is renewed.
func TestRenewalAfterClose(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		if err := b.e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.e.Renew(b.Context(), h, time.Minute); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}
