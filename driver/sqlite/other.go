//go:build !linux

package sqlite

import (
	"errors"
	"os"
	"time"
)

// Other systems than Linux do without what the files named _linux give: see the package comment.

// clock is the wall clock, in nanoseconds.
func clock() int64 { return time.Now().UnixNano() }

// boot is always the same: leases end by the clock, after a reboot too.
func boot() (string, error) { return "unknown", nil }

// checkPlace refuses nothing: which file systems are fit is not known.
func checkPlace(string) error { return nil }

// openPipe says that there are no pipes that Go could wait for.
func openPipe(_, _ string) (*os.File, error) { return nil, errors.ErrUnsupported }

func notify(string) {}
