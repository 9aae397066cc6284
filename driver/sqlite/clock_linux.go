package sqlite

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// clock is the time since the machine was booted, in nanoseconds. It counts the time
// that the machine was suspended, and nobody can set it.
func clock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail: the clock is older than the kernels that Go runs on
	return ts.Nano()
}

// boot names the present run of the kernel. All containers of a machine see the same.
func boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("the kernel does not tell its boot ID: %w", err)
	}
	// A container may have a clock of its own (time_namespaces(7)), which none of the
	// usual engines gives it.
	offsets, _ := os.ReadFile("/proc/self/timens_offsets")
	if m := boottimeOffset.FindSubmatch(offsets); m != nil && (string(m[1]) != "0" || string(m[2]) != "0") {
		return "", errors.New("the clock of this process is not the machine's: it is in a time namespace with an offset")
	}
	return strings.TrimSpace(string(b)), nil
}

var boottimeOffset = regexp.MustCompile(`(?m)^boottime\s+(-?\d+)\s+(\d+)`)
