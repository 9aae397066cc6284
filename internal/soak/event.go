//go:build linux

package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Kinds of events.
const (
	granted  = "granted"  // the lock has been granted, and has not ended at At
	alive    = "alive"    // the lock has not ended at At
	released = "released" // as alive, and the lock was released afterwards
	lost     = "lost"     // the holder has found its lock ended
	refused  = "refused"  // the acquisition that began at From failed at At
	late     = "late"     // the grant arrived when the lease was over
	reason   = "reason"   // why a lock was lost, from the observer
	broken   = "broken"   // the worker has seen that a promise was broken
)

// An event is what a worker reports, one a line. Times are nanoseconds of
// CLOCK_MONOTONIC, which all processes of the machine share.
type event struct {
	Kind  string `json:"kind"`
	ID    string `json:"id,omitempty"` // of the hold
	Name  string `json:"name,omitempty"`
	Mode  int    `json:"mode,omitempty"` // 0 is exclusive, -1 is shared, n is one of n permits
	Token uint64 `json:"token,omitempty"`
	From  int64  `json:"from,omitempty"` // when the call began
	At    int64  `json:"at,omitempty"`
	Wait  bool   `json:"wait,omitempty"`
	Why   string `json:"why,omitempty"`
}

// now reads CLOCK_MONOTONIC.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it cannot fail
	return ts.Nano()
}

// A span is a time from one moment to another, both included.
type span struct{ from, to int64 }

func (s span) meets(o span) bool { return s.from <= o.to && o.from <= s.to }

func seconds(ns int64) string { return fmt.Sprintf("%.6f", time.Duration(ns).Seconds()) }
