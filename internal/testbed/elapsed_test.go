package testbed

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func init() {
	RegisterChild("sleeps", childSleeps)
	RegisterChild("burns", childBurns)
}

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

// childBurns keeps all processors busy for a while.
func childBurns() {
	fmt.Println("took", Elapsed(func() {
		var group sync.WaitGroup
		for range 8 * runtime.GOMAXPROCS(0) {
			group.Go(func() {
				for begun := time.Now(); time.Since(begun) < childSleep; {
				}
			})
		}
		group.Wait()
	}))
}

// What the process itself spends on the processors counts, though its timers are late
// then as they are beside busy neighbours.
func TestElapsedBusy(t *testing.T) {
	got, err := time.ParseDuration(Child(t, "burns").WaitLine("took "))
	if err != nil || got < childSleep*9/10 {
		t.Errorf("%v of work on all processors: %v, %v", childSleep, got, err)
	}
}
