package locker

import (
	"syscall"
	"time"
	"unsafe"
)

// suspended is how long this machine was suspended since it was booted.
func suspended() time.Duration {
	const monotonic, boottime = 1, 7 // CLOCK_MONOTONIC, CLOCK_BOOTTIME
	return readClock(boottime) - readClock(monotonic)
}

func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	// Neither clock can fail: both are older than the kernels that Go runs on.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
