package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneMachineRunsTheJob(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		if want := (result{machines, machines, 1}); r != want {
			t.Errorf("the job ran %v times, want %v", [3]int(r), [3]int(want))
		}
	})
}
