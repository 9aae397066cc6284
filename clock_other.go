//go:build !linux

package locker

import "time"

var started = time.Now()

// stepped is how far the wall clock may be set forward without being taken for
// a suspension.
const stepped = 10 * time.Second

// suspended is how much further the wall clock went than the monotonic one,
// since the program started: the time in which the monotonic clock stood still.
func suspended() time.Duration {
	now := time.Now()
	d := now.Round(0).Sub(started.Round(0)) - now.Sub(started)
	if d < stepped {
		return 0
	}
	return d
}
