package postgres

import (
	"context"
	"sync/atomic"
	"time"
)

// A statement that takes a ticket carries the time until which its sender waits
// for the answer, on the database's clock: a request that the network, or a lock in the
// database, held back for longer does nothing. Nothing else rests on this
// reading of the clock, and no exclusion does: when it is wrong, because the
// database's clock was set, the database says so and the request is sent again.
type clock struct{ last atomic.Pointer[reading] }

// A reading is what the database's clock said in the answer to a request that was
// sent at the given time.
type reading struct {
	micros int64
	sent   time.Time
}

const (
	// takeBound is how long a request for a ticket may be under way. The core looks for
	// the ticket of an unanswered one for longer than that.
	takeBound = 10 * time.Second
	// readingAge bounds how far the two clocks drift apart.
	readingAge = 10 * time.Minute
)

// set takes down a reading.
func (c *clock) set(micros int64, sent time.Time) { c.last.Store(&reading{micros, sent}) }

// deadline is when a request that is sent now is too late, in microseconds of the
// database's clock; 0 if that is not known: then the database says what time it is.
func (c *clock) deadline(ctx context.Context) int64 {
	r := c.last.Load()
	if r == nil || time.Since(r.sent) > readingAge {
		return 0
	}
	left := takeBound
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return r.micros + (time.Since(r.sent) + left).Microseconds()
}
