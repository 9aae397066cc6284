// Package sqlqueue has what the drivers share that keep queues in tables of a database:
// bounds of times, the form of times in statements, and the hash that identifies a
// version of a schema.
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
