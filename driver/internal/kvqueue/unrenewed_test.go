package kvqueue

import (
	"errors"
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
