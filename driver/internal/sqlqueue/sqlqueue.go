// Package sqlqueue is what the drivers have in common that keep queues in tables of a
// database: bounds of their times, how times are told to it, and what tells one version
// of a schema from another.
package sqlqueue

import (
	"fmt"
	"time"
)

// Bounds of leases, and of how long a waiting process may be silent.
const (
	MinTTL = 10 * time.Millisecond // a statement or two

	DefaultLiveness = 4 * time.Second
	leastLiveness   = 100 * time.Millisecond
	mostLiveness    = time.Hour
)

// CheckLiveness says what is wrong with a liveness interval.
func CheckLiveness(d time.Duration) error {
	if d < leastLiveness || d > mostLiveness {
		return fmt.Errorf("liveness %v: want %v to %v", d, leastLiveness, mostLiveness)
	}
	return nil
}

// Micros are the microseconds of d, rounded up: a lease is never shorter than
// asked.
func Micros(d time.Duration) int64 {
	n := d.Microseconds()
	if time.Duration(n)*time.Microsecond < d {
		n++
	}
	return n
}
