package kvqueue

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

var errAway = errors.New("fake: the store is away")

// A renewal was not answered. Then the store was back, and has queued a ticket: its caller
// gives up, and that is not because the store does not answer.
func TestOutageIsOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.another(), request("a", "0"))
		r := request("b", "1")
		r.TTL = 10 * time.Second
		held := b.get(b.e, r)
		b.store.with(func(what, _ string, done bool) error {
			if what == "keep" && !done {
				return errAway
			}
			return nil
		})
		if err := b.e.Renew(b.Context(), held, r.TTL); !errors.Is(err, errAway) {
			t.Fatalf("renewal: %v", err)
		}
		b.store.with(nil)
		w := b.wait(b.e, request("a", "w"))
		time.Sleep(time.Second)
		w.cancel()
		synctest.Wait()
		if !errors.Is(w.err, context.Canceled) || errors.Is(w.err, errAway) {
			t.Errorf("the waiter got %v, want no more than Canceled", w.err)
		}
		b.drop(b.e, w.r.Hold(0))
		b.drop(b.e, held)
		b.drop(b.others[0], h)
	})
}

// The bound of a reading of the queue is not the caller's: the error of a wait in an outage does not match its end.
func TestSilentReading(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.another(), request("a", "0"))
		w := b.wait(b.e, request("a", "w"))
		time.Sleep(time.Second)
		b.store.with(func(what, _ string, done bool) error {
			if (what == "read" || what == "watch") && !done {
				return &url.Error{Op: "Get", URL: "/v1/kv", Err: context.DeadlineExceeded}
			}
			return nil
		})
		b.e.mu.Lock()
		b.e.recheck()
		b.e.unlock()
		time.Sleep(100 * time.Millisecond)
		w.cancel()
		synctest.Wait()
		if !errors.Is(w.err, driver.ErrUnavailable) || errors.Is(w.err, context.DeadlineExceeded) {
			t.Errorf("the waiter got %v, want ErrUnavailable, and no deadline", w.err)
		}
		b.store.with(nil)
		b.drop(b.e, w.r.Hold(0))
		b.drop(b.others[0], h)
	})
}

// Acquisitions that could open no session leave nothing.
func TestFailedSessionsLeaveNothing(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.with(func(what, _ string, done bool) error { return errAway })
		for i := range 10 {
			r := request("a", "1")
			r.TTL += time.Duration(i) * time.Second
			if _, err := b.e.Acquire(b.Context(), r); !errors.Is(err, errAway) {
				t.Fatal(err)
			}
		}
		if n := len(b.e.current) + len(b.e.asking); n > 0 {
			t.Errorf("%d kinds are left", n)
		}
	})
}
