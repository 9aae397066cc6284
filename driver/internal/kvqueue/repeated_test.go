package kvqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A request is repeated while its ticket waits, is held, or has been given up. The ticket keeps its number if it may wait,
// and is gone if the repetition may not.
func TestRepeatedRequest(t *testing.T) {
	for _, state := range []string{"waits", "is given up", "is held"} {
		for _, wait := range []bool{true, false} {
			t.Run(state, func(t *testing.T) {
				inBubble(t, func(b *bed) {
					other, before := b.another(), driver.Hold{}
					r := request("a", "1")
					var first *waiter
					if state == "is held" {
						b.get(b.e, r)
					} else {
						before = b.get(other, request("a", "0"))
						first = b.wait(b.e, r)
					}
					if state == "is given up" {
						first.cancel()
						synctest.Wait()
					}
					puts := b.store.count("put")
					r.Wait = wait
					switch {
					case state == "is held":
						if g, err := b.e.Acquire(b.Context(), r); err != nil || g.Token != 1 {
							t.Errorf("the same request: token %d, error %v, want the ticket that is held", g.Token, err)
						}
						b.drop(b.e, r.Hold(0))
					case wait:
						again := b.wait(b.e, r)
						b.drop(other, before)
						b.granted(again, true)
						if first.done != (first.err == nil || state == "is given up") {
							t.Errorf("the first call: %v", first.err)
						}
						b.drop(b.e, r.Hold(0))
					default:
						if _, err := b.e.Acquire(b.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
							t.Errorf("the same request, which may not wait: %v, want ErrNotAcquired", err)
						}
						if n := b.store.queued("a"); n != 1 {
							t.Errorf("%d tickets are queued, want the holder's", n)
						}
					}
					if n := b.store.count("put") - puts; n > 0 {
						t.Errorf("%d puts for a ticket that was there", n)
					}
				})
			})
		}
	}
}

// A waiter is called for again: while one of the calls waits, the ticket waits, and its session is kept alive.
func TestRepeatedWait(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.another(), request("a", "0"))
		first := b.wait(b.e, request("a", "1"))
		again := b.wait(b.e, first.r)
		first.cancel()
		b.stays("a", "1", 2*time.Minute)
		b.drop(b.others[0], h)
		b.granted(again, true)
		b.drop(b.e, again.r.Hold(0))
	})
}

// A ticket whose release was not answered may be gone: the same request queues a new one.
func TestRepeatedAfterUnansweredRelease(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "0"))
		w := b.wait(b.e, request("a", "1"))
		w.cancel()
		synctest.Wait()
		b.store.with(func(what, _ string, done bool) error {
			if what == "delete" && done {
				return errFakeLost
			}
			return nil
		})
		if err := b.e.Release(b.Context(), w.r.Hold(0)); !errors.Is(err, errFakeLost) {
			t.Fatalf("release: %v", err)
		}
		b.store.with(nil)
		again := b.wait(b.e, w.r)
		if n := b.store.queued("a"); n != 2 {
			t.Errorf("%d tickets are queued, want the holder's and the waiter's", n)
		}
		b.drop(other, h)
		b.granted(again, true)
		b.drop(b.e, again.r.Hold(0))
	})
}

// A put does what its condition asks for, and the ticket has to wait all the same: a request that does not wait reads again,
// and leaves no ticket.
func TestTryBehindWhatItsConditionMissed(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		b.store.with(func(what, _ string, done bool) error {
			if what == "look" && done {
				b.store.with(nil)
				b.get(other, request("a", "0"))
				b.store.mu.Lock()
				b.store.overlook = true
				b.store.mu.Unlock()
			}
			return nil
		})
		r := request("a", "1")
		r.Wait = false
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		if _, err := b.e.Acquire(ctx, r); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%v, want ErrNotAcquired", err)
		}
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued, want the holder's", n)
		}
		b.drop(other, driver.Hold{Name: "a", ID: "0"})
	})
}
