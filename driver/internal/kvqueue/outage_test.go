package kvqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
		if n := len(b.e.classes); n > 0 {
			t.Errorf("%d classes are left", n)
		}
	})
}
