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
	made      time.Time
	seen      atomic.Int64 // its growth since then, as of the last offset
	seenAt    atomic.Int64 // when that was, counted from made
}

// jitter is how much two readings may differ without a suspension between them.
const jitter = time.Millisecond

func newClock(suspended func() time.Duration) *clock {
	return &clock{suspended: suspended, start: suspended(), made: time.Now()}
}

// now is the present time.
func (c *clock) now() time.Time { return time.Now().Add(c.offset()) }

// recent is now, but for a suspension of the last second: it makes no system call each time.
func (c *clock) recent() time.Time {
	now := time.Now()
	return now.Add(c.offsetAt(now))
}

// offset is how long the machine was suspended since the clock was made.
func (c *clock) offset() time.Duration {
	at := int64(time.Since(c.made))
	defer func() { c.seenAt.Store(at) }() // after seen: who finds it does not measure
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

// offsetAt is the offset as of the second before now. It is never more than the offset, so a
// validity that counts from it ends too early rather than too late.
func (c *clock) offsetAt(now time.Time) time.Duration {
	if now.Sub(c.made)-time.Duration(c.seenAt.Load()) > time.Second {
		return c.offset()
	}
	return time.Duration(c.seen.Load())
}
