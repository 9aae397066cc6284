package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequestsAreServed(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		const all = servers * requests
		served, failed, degraded := tally{served: all}, tally{unavailable: all}, tally{served: all, degraded: all}
		if got, want := r.without.phases, [3]tally{served, failed, served}; got != want {
			t.Errorf("without a fallback: %+v, want %+v", got, want)
		}
		if got, want := r.with.phases, [3]tally{served, degraded, served}; got != want {
			t.Errorf("with a fallback: %+v, want %+v", got, want)
		}
	})
}
