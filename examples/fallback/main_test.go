package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequestsAreServed(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		served, failed, degraded := tally{served: requests}, tally{unavailable: requests}, tally{served: requests, degraded: requests}
		if want := (phases{served, failed, served}); r.without != want {
			t.Errorf("without a fallback: %+v, want %+v", r.without, want)
		}
		if want := (phases{served, degraded, served}); r.with != want {
			t.Errorf("with a fallback: %+v, want %+v", r.with, want)
		}
	})
}
