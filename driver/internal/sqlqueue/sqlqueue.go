package sqlqueue

import (
	"fmt"
	"math"
	"time"
)

// Bounds of leases, and of how long a waiting process may be silent.
const (
	MinTTL = 10 * time.Millisecond // a statement or two

	DefaultLiveness = 4 * time.Second
	leastLiveness   = 100 * time.Millisecond
	mostLiveness    = time.Hour
)

// CheckLiveness returns an error if a liveness interval is out of bounds.
func CheckLiveness(d time.Duration) error {
	if d < leastLiveness || d > mostLiveness {
		return fmt.Errorf("liveness %v: want %v to %v", d, leastLiveness, mostLiveness)
	}
	return nil
}

// Micros returns d in microseconds, rounded up: a lease is never shorter than
// requested.
func Micros(d time.Duration) int64 {
	n := d.Microseconds()
	if time.Duration(n)*time.Microsecond < d {
		n++
	}
	return n
}

// AnyNumber is how a table stores that a ticket has no limit, where a statement computes with limits.
const AnyNumber = math.MaxInt64

// Permits is a limit as such a table stores it.
func Permits(limit int) int64 {
	if limit == 0 {
		return AnyNumber
	}
	return int64(limit)
}

// Limit is the limit that is stored so.
func Limit(permits int64) int {
	if permits == AnyNumber {
		return 0
	}
	return int(permits)
}
