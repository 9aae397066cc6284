package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// sharedClock is a clock that all processes of this machine read alike, that nobody sets, and
// that goes on while the machine is suspended.
func sharedClock() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it cannot fail: the clock is older than the kernels that Go supports
	return time.Duration(ts.Nano())
}
