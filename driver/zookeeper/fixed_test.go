package zookeeper_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

// Of a fixed lease that is longer than the session's, and renewed until its end, no more is shown than is left and a
// request takes.
func TestRemainingOfALongFixedLease(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, time.Minute)
	c := client(t, storeURL(t))
	const ttl = 6 * time.Second
	const request = 500 * time.Millisecond // the driver counts a renewal from when it sends it, which is later than when it was asked to
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x", locker.WithTTL(ttl), locker.WithoutRenewal()))
	end := time.Now().Add(ttl) // or sooner
	for looked := 0; ; looked++ {
		now := time.Now()
		q := must[locker.Queue](t)(c.Inspect(ctx, "x"))
		if k.Err() != nil || len(q.Tickets) == 0 {
			if looked == 0 {
				t.Error("it was never shown")
			}
			return
		}
		if left := q.Tickets[0].Remaining; left > end.Sub(now)+request {
			t.Fatalf("%v before its end, %v are shown", end.Sub(now), left)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
