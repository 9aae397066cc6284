//go:build unix && !linux

package supervise

import "time"

// sharedClock is the clock on the wall, which all processes of this machine read alike. When
// it is set, this process tells the guard the new times at its next check.
func sharedClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
