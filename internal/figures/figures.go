// Package figures measures how clients share a lock, for `locker bench` and for the module bench.
package figures

import (
	"slices"
	"time"
)

// Jain is the fairness index of Jain, Chiu and Hawe (DEC-TR-301, 1984): 1 when all have
// the same, 1/n when one has everything, 0 when nobody has anything.
func Jain(counts []int) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// Percentile sorts times and returns the p-th percentile, which is 0 if there are none.
func Percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[(len(times)-1)*p/100]
}

// Round returns a time with its first three digits.
func Round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs()/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
