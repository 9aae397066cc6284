//go:build unix

package sim

import (
	"syscall"
	"time"
)

// processorTime is how much processor time the test has taken.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
