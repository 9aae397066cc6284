package kvqueue

import (
	"testing"
	"testing/synctest"
	"time"
)

// A caller is notified for long that its ticket waits. The ticket is granted meanwhile, and stays alive.
func TestGrantedDuringJoined(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.another(), request("a", "0"))
		r := request("a", "w")
		const notified = 3 * time.Minute
		r.Joined = func() { time.Sleep(notified) }
		granted := make(chan error, 1)
		go func() { _, err := b.e.Acquire(b.Context(), r); granted <- err }()
		time.Sleep(time.Second)
		b.drop(b.others[0], h)
		b.stays("a", "w", notified-2*time.Second)
		if err := <-granted; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		before := b.store.count("keep")
		time.Sleep(time.Minute)
		if n := b.store.count("keep") - before; n > 0 {
			t.Errorf("%d keep-alives after the grant", n)
		}
		b.drop(b.e, r.Hold(0))
	})
}

// The answer to a put is slow. The ticket is queued, and stays alive.
func TestSlowPut(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.another(), request("a", "0"))
		b.store.with(func(what, name string, done bool) error {
			if what == "put" && done {
				time.Sleep(time.Minute)
			}
			return nil
		})
		r := request("a", "w")
		granted := make(chan error, 1)
		go func() { _, err := b.e.Acquire(b.Context(), r); granted <- err }()
		b.stays("a", "w", 59*time.Second)
		time.Sleep(time.Minute)
		b.drop(b.others[0], h)
		if err := <-granted; err != nil {
			t.Error(err)
		}
		b.drop(b.e, r.Hold(0))
	})
}
