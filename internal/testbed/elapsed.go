package testbed

import "time"

// Elapsed is how long f took, less the time in which the machine was too busy to
// run this process: a test that bounds a call measures the code with it, not the
// neighbours. A timer that fires each millisecond shows the difference: by what it
// is late, f may have been late too. Less than a millisecond is a timer's own lag.
func Elapsed(f func()) time.Duration {
	const tick = time.Millisecond
	stop, late := make(chan struct{}), make(chan time.Duration)
	go func() {
		var sum time.Duration
		count := func(since time.Duration) {
			if late := since - tick; late > tick {
				sum += late
			}
		}
		t := time.NewTimer(tick)
		defer t.Stop()
		for last := time.Now(); ; {
			select {
			case <-stop:
				count(time.Since(last))
				late <- sum
				return
			case <-t.C:
			}
			count(time.Since(last))
			last = time.Now()
			t.Reset(tick)
		}
	}()
	began := time.Now()
	f()
	took := time.Since(began)
	close(stop)
	return max(0, took-<-late)
}
