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

// The time in which the server stands still does not count either, if it is asked for.
func TestElapsedOfServer(t *testing.T) {
	t.Parallel()
	s := Redis(t, Faults())
	const halt, work = 300 * time.Millisecond, 200 * time.Millisecond
	f := func() {
		s.Pause()
		time.Sleep(halt)
		s.Resume()
		time.Sleep(work)
	}
	if got := s.Elapsed(f); got > work+halt/2 {
		t.Errorf("a pause of the server for %v and %v of work: %v, want about %v", halt, work, got, work)
	}
}

// childBurns keeps all processors busy for a while.
func childBurns() {
	begun := processorTime()
	got := Elapsed(func() {
		var group sync.WaitGroup
		for range 8 * runtime.GOMAXPROCS(0) {
			group.Go(func() {
				for begun := time.Now(); time.Since(begun) < childSleep; {
				}
			})
		}
		group.Wait()
	})
	fmt.Println("took", got, processorTime()-begun)
}

// What the process itself spends on the processors counts, though its timers are late
// then as they are beside busy neighbours.
func TestElapsedBusy(t *testing.T) {
	var got, used string
	if _, err := fmt.Sscan(Child(t, "burns").WaitLine("took "), &got, &used); err != nil {
		t.Fatal(err)
	}
	took, err := time.ParseDuration(got)
	work, err2 := time.ParseDuration(used)
	if want := min(work, childSleep) * 9 / 10; err != nil || err2 != nil || took < want {
		t.Errorf("%v of work on all processors, which ran it for %v: %v, want at least %v (%v, %v)", childSleep, work, took, want, err, err2)
	}
}
