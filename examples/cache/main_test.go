package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneBuildsForAll(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		if r.without.built < 2 {
			t.Errorf("without a lock: built %d times: nothing went wrong", r.without.built)
		}
		if r.with.built != 1 || r.with.served != visitors {
			t.Errorf("with the lock: built %d times, served %d times, for %d visitors", r.with.built, r.with.served, visitors)
		}
	})
}
