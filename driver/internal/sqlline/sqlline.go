// Package sqlline is what the drivers have in common that keep lines in tables
// of a database: bounds of their times, and how times are told to it.
package sqlline

import (
	"fmt"
	"time"
)

// Bounds of leases and of the signs of life of waiting processes.
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
