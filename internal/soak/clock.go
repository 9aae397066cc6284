//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A clock is the wall clock of the servers, which libfaketime sets. Go programs read
// the machine's, whatever is preloaded: the workers' clocks stay as they are.
type clock struct {
	file   string
	offset time.Duration
}

// makeClock has the processes that are started from now on read another clock.
func makeClock() (*clock, error) {
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		return nil, errors.New("libfaketime is not installed")
	}
	c := &clock{file: filepath.Join(os.TempDir(), "clock")}
	for _, setting := range []string{
		"LD_PRELOAD=" + found[0], "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1",
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1",
	} {
		name, value, _ := strings.Cut(setting, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return c, c.step(0)
}

// step sets the clock forward, or back, for all processes at once.
func (c *clock) step(d time.Duration) error {
	c.offset += d
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", c.offset.Seconds()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file)
}
