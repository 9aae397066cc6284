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
		if got, want := r.without.phases, [phases]tally{before: served, during: failed, after: served}; got != want {
			t.Errorf("without a fallback: %+v, want %+v", got, want)
		}
		noticing := r.with.phases[until] // until one grant is the first store's, on each server
		if noticing.unavailable > 0 || noticing.served != noticing.degraded+servers {
			t.Errorf("with a fallback, until it is noticed that the store is back: %+v", noticing)
		}
		if got, want := r.with.phases, [phases]tally{served, degraded, noticing, served}; got != want {
			t.Errorf("with a fallback: %+v, want %+v", got, want)
		}
	})
}
