package main

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) {
	if !child() {
		goleak.VerifyTestMain(m)
	}
}

func TestStandbyTakesOver(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		if r.without.twice() == 0 {
			t.Error("without an election: the job was never done by both: nothing went wrong")
		}
		if n := r.with.twice(); n != 0 {
			t.Errorf("with an election: two led at once: the job was done %d times by both", n)
		}
		if d := r.with.tookOver().Sub(r.with.killed); d < 0 || d > ttl+10*time.Second { // the machine may be slow
			t.Errorf("the standby took over %v after the leader was killed", d)
		}
	})
}
