package locker

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// suspended is how long this machine was suspended since it was booted. If the
// process is paused between the readings of the two clocks, that looks like a
// suspension, so they are repeated until they are close to each other.
func suspended() (d time.Duration) {
	const monotonic, boottime = 1, 7 // CLOCK_MONOTONIC, CLOCK_BOOTTIME
	closest := time.Duration(math.MaxInt64)
	for tries := 0; tries < 10 && closest > jitter/10; tries++ {
		before := readClock(monotonic)
		boot := readClock(boottime)
		if apart := readClock(monotonic) - before; apart < closest {
			closest, d = apart, boot-before
		}
	}
	return d
}

func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	// It cannot fail: both clocks are older than the kernels that Go supports.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
