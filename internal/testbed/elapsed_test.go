package testbed

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func init() { RegisterChild("sleeps", childSleeps) }

const childSleep = 400 * time.Millisecond

// childSleeps tells that it sleeps, and then for how long it has.
func childSleeps() {
	fmt.Println("sleeps")
	fmt.Println("took", Elapsed(func() { time.Sleep(childSleep) }))
}

// What f spends asleep counts, all of it; what the machine spends on others, while it does
// not run the process at all, does not.
func TestElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on a machine that is never late
		if got := Elapsed(func() { time.Sleep(200 * time.Millisecond) }); got != 200*time.Millisecond {
			t.Errorf("a sleep of 200ms: %v", got)
		}
	})
	p := Child(t, "sleeps")
	p.WaitLine("sleeps")
	p.Pause()
	time.Sleep(2 * childSleep)
	p.Resume()
	if got, err := time.ParseDuration(p.WaitLine("took ")); err != nil || got > childSleep+20*time.Millisecond {
		t.Errorf("a sleep of %v in a process that was stopped: %v, %v", childSleep, got, err)
	}
}
