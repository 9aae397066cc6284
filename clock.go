package locker

import (
	"sync/atomic"
	"time"
)

// clock is the clock of validity: Go's monotonic clock, plus the time that the
// machine was suspended since the clock was made. The store's clock counts that time
// too, but on Linux the monotonic clock does not (clock_gettime(2): CLOCK_MONOTONIC,
// CLOCK_BOOTTIME). A step of the wall clock changes nothing on Linux. Elsewhere the wall
// clock shows the suspensions: a step forward by 10 s or more looks like one, so leases end
// early, and a step back may hide one.
type clock struct {
	suspended func() time.Duration // in total; only its growth counts
	start     time.Duration        // suspended() when the clock was made
	seen      atomic.Int64         // its growth since then, as of the last offset
}

// jitter is how much two readings may differ without a suspension between them.
const jitter = time.Millisecond

func newClock(suspended func() time.Duration) *clock {
	return &clock{suspended: suspended, start: suspended()}
}

// now is the present time.
func (c *clock) now() time.Time { return time.Now().Add(c.offset()) }

// recent is now with the last offset. It costs no system call, and does not count a
// suspension that was not measured yet.
func (c *clock) recent() time.Time { return time.Now().Add(c.lastOffset()) }

// offset is how long the machine was suspended since the clock was made.
func (c *clock) offset() time.Duration {
	d := int64(c.suspended() - c.start)
	for {
		seen := c.seen.Load()
		if d <= seen+int64(jitter) {
			return time.Duration(seen)
		}
		if c.seen.CompareAndSwap(seen, d) {
			return time.Duration(d)
		}
	}
}

// lastOffset is the offset when it was last measured. It is never more than the
// offset, so a validity that counts from it ends too early rather than too late.
func (c *clock) lastOffset() time.Duration { return time.Duration(c.seen.Load()) }
