package kvqueue

import (
	"errors"
	"testing"
	"time"
)

var errAway = errors.New("fake: the store is away")

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
