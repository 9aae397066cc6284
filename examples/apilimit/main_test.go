package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoCallIsRefused(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		if r.without.refused == 0 || r.without.most <= allowed {
			t.Errorf("without a lock: %v: nothing went wrong", r.without)
		}
		if r.limit.refused == 0 || r.limit.most > allowed {
			t.Errorf("with Limit: %v: want at most %d at the same time, and calls refused", r.limit, allowed)
		}
		if r.rate.refused != 0 || len(r.rate.accepted) != programs {
			t.Errorf("with Limit and WithMinHold: %v", r.rate)
		}
	})
}
