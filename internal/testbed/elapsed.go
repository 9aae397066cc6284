package testbed

import (
	"context"
	"sync"
	"time"

	"github.com/lockerproject/locker/internal/probe"
)

// Elapsed is how long f took, less the time in which the machine was too busy with
// others to run this process: a test that bounds a call measures the code with it, not
// the neighbours. A timer that fires each millisecond shows the difference: by what it
// is late, f may have been late too. Less than a millisecond is a timer's own lag. The
// processor time that this process has used meanwhile counts in full: code that keeps
// the processors busy makes the timer late, too.
func Elapsed(f func()) time.Duration {
	took, _ := Measure(f)
	return took
}

// Elapsed is [Elapsed], less the time in which the server did not answer somebody else
// either: it is for bounds that a driver promises on a server that answers.
func (s *Server) Elapsed(f func()) time.Duration {
	s.tb.Helper()
	ask := func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		_ = s.kind.ready(ctx, s.addr, s.opts)
	}
	var took, late time.Duration
	stall := probe.Stall(ask, func() { took, late = Measure(f) })
	return took - min(took, max(0, stall-late))
}

// Measure is Elapsed, and the time that it leaves out: what f has to do before some
// deadline it may not have done in time, if that is long.
func Measure(f func()) (took, late time.Duration) {
	const tick = time.Millisecond
	stop, sums := make(chan struct{}), make(chan time.Duration, 1)
	began, used := time.Now(), processorTime() // the goroutine may be late already when it begins
	go func() {
		var sum time.Duration
		count := func(since time.Duration) {
			if late := since - tick; late > tick {
				sum += late
			}
		}
		t := time.NewTimer(tick)
		defer t.Stop()
		for last := began; ; {
			select {
			case <-stop:
				count(time.Since(last))
				sums <- sum
				return
			case <-t.C:
			}
			count(time.Since(last))
			last = time.Now()
			t.Reset(tick)
		}
	}()
	end := sync.OnceFunc(func() { close(stop) })
	defer end() // also if f ends the test
	f()
	took = time.Since(began)
	end()
	late = max(0, min(took, <-sums)-(processorTime()-used)) // the timer may have been late after f ended, too
	return max(0, took-late), late
}
