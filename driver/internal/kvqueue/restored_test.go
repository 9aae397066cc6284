package kvqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// After a store has lost its past, a ticket that is queued during the first reading of the
// queue is not lost with the older ones.
func TestQueuedSinceRestored(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.unwatched = true // a loss watch would find out, too
		other := b.another()
		h := b.get(other, request("a", "0"))
		b.get(b.e, request("b", "1"))
		before := b.wait(b.e, request("a", "2"))
		b.store.restore("a", 1)
		var grant driver.Grant
		var err error
		ended := false
		joined := make(chan struct{})
		since := request("a", "3")
		since.Joined = func() { close(joined) }
		reads := 0
		b.store.with(func(what, _ string, done bool) error {
			if what == "read" && done {
				if reads++; reads == 1 {
					time.Sleep(time.Millisecond)
					go func() {
						grant, err = b.e.Acquire(b.Context(), since)
						ended = true
					}()
					<-joined
				}
			}
			return nil
		})
		time.Sleep(2 * time.Second) // the queue is read again
		synctest.Wait()
		if !before.done || ended {
			t.Errorf("the waiter from before has ended: %v, the one since: %v (%v)", before.done, ended, err)
		}
		b.drop(other, h)
		synctest.Wait()
		if !ended || err != nil {
			t.Fatalf("the waiter since is granted: %v, %v", ended, err)
		}
		b.drop(b.e, since.Hold(grant.Token))
	})
}
