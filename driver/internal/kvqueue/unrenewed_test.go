package kvqueue

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// unrenewed is a request for a lock that nobody renews on schedule.
func unrenewed(name, id string, ttl time.Duration) driver.Request {
	r := request(name, id)
	r.TTL, r.Renewed = ttl, false
	return r
}

// If the store does not answer when the watch for losses has reported, the holder of a lock
// that nobody renews is notified when it answers again.
func TestCheckFailsUnrenewed(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.get(b.e, unrenewed("a", "1", 30*time.Second))
		time.Sleep(2 * lossDelay)
		b.store.with(func(what, _ string, _ bool) error {
			if what == "missing" {
				return errFakeLost
			}
			return nil
		})
		b.store.strike("a", "1")
		synctest.Wait()
		b.store.with(nil)
		time.Sleep(2 * retryMost)
		synctest.Wait()
		if !errors.Is(b.lost["1"], driver.ErrLost) {
			t.Error("the holder was not notified")
		}
	})
}

// The renewal that moves a ticket finds out that the ticket was broken before the move was
// answered, since nobody may renew it again.
func TestBrokenInMoveUnrenewed(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, unrenewed("a", "moved", 30*time.Second))
		for i := range 2 {
			b.get(b.e, unrenewed(fmt.Sprint("name-", i), fmt.Sprint(i), time.Minute))
		}
		time.Sleep(2 * lossDelay)
		b.store.with(func(what, _ string, done bool) error {
			if what == "move" && done {
				b.store.strike("a", "moved")
				synctest.Wait() // the watch has reported, and the clock shows no later time
			}
			return nil
		})
		err := b.e.Renew(b.Context(), h, time.Minute)
		time.Sleep(5 * time.Second) // before the old session ends, of which the fake reports too
		synctest.Wait()
		if b.lost["moved"] == nil && !errors.Is(err, driver.ErrLost) {
			t.Errorf("the renewal returned %v, and the holder was not notified", err)
		}
	})
}
