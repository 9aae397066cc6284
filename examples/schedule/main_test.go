package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJobRunsOnceInEachPeriod(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		released := 0
		for p := range periods {
			released += r.released.in[p]
			if n := r.without.in[p]; n != instances {
				t.Errorf("period %d, without a lock: the job ran %d times, want one for each of %d instances", p, n, instances)
			}
			if n := r.with.in[p]; n != 1 {
				t.Errorf("period %d, lock with WithMinHold: the job ran %d times", p, n)
			}
		}
		if released <= periods { // in one of them a busy machine may start all instances together
			t.Errorf("lock released when the job is done: the job ran %v times: nothing went wrong", r.released.in)
		}
	})
}
