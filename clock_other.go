//go:build !linux

package locker

import "time"

var started = time.Now()

// stepped is how far the wall clock may be set forward before that counts as a
// suspension.
const stepped = 10 * time.Second

// suspended is how much more the wall clock has advanced since the program started
// than the monotonic clock, which stands still while the machine is suspended.
func suspended() time.Duration {
	now := time.Now()
	d := now.Round(0).Sub(started.Round(0)) - now.Sub(started)
	if d < stepped {
		return 0
	}
	return d
}
