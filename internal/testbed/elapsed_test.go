package testbed

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What f spends asleep counts, all of it; what all processors spend on
// others does not.
func TestElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on a machine that is never late
		if got := Elapsed(func() { time.Sleep(200 * time.Millisecond) }); got != 200*time.Millisecond {
			t.Errorf("a sleep of 200ms: %v", got)
		}
	})
	var stop atomic.Bool
	defer stop.Store(true)
	for range 8 * runtime.GOMAXPROCS(0) {
		go func() {
			for !stop.Load() { // it takes a processor
			}
		}()
	}
	if got := Elapsed(func() { time.Sleep(200 * time.Millisecond) }); got > 220*time.Millisecond {
		t.Errorf("a sleep of 200ms on a busy machine: %v", got)
	}
}
