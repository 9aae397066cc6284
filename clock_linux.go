package locker

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// suspended is how long this machine was suspended since it was booted. A process
// that does not run between two readings of clocks would take that for a
// suspension, so the readings are repeated until they are close to each other.
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
	// Neither clock can fail: both are older than the kernels that Go runs on.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
