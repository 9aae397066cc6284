package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) {
	if !child() {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else each child ends a second later under the race detector
		goleak.VerifyTestMain(m)
	}
}

func TestOneMachineRunsTheJob(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		if want := (result{machines, machines, 1}); r != want {
			t.Errorf("the job ran %v times, want %v", [3]int(r), [3]int(want))
		}
	})
}
