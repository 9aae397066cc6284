//go:build !linux

package sqlite

import "time"

// clock is the wall clock, in nanoseconds.
func clock() int64 { return time.Now().UnixNano() }

// boot is always the same here: leases end by the clock, after a reboot too.
func boot() (string, error) { return "unknown", nil }
