package locker

import (
	"sync/atomic"
	"time"
)

// clock is the clock by which leases are counted: Go's monotonic clock, plus
// the time that the machine was suspended since the clock was made. The store
// counts that time too, and on Linux the monotonic clock does not
// (clock_gettime(2): CLOCK_MONOTONIC, CLOCK_BOOTTIME). A step of the wall clock
// changes nothing.
type clock struct {
	suspended func() time.Duration // in all; only its growth counts
	start     time.Duration        // suspended() when the clock was made
	seen      atomic.Int64         // the longest suspension seen since then
}

// jitter is how much two readings of clocks may differ without a suspension.
const jitter = time.Millisecond

func newClock(suspended func() time.Duration) *clock {
	return &clock{suspended: suspended, start: suspended()}
}

// now is the present time.
func (c *clock) now() time.Time { return time.Now().Add(c.offset()) }

// recent is now as far as the suspensions go that somebody has seen: it costs no
// system call. What is counted by it alone may be late by a suspension.
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

// lastOffset is the offset when somebody last looked: never more than offset, so
// that a lease that is counted from it ends too early rather than too late.
func (c *clock) lastOffset() time.Duration { return time.Duration(c.seen.Load()) }
