package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryNumberIsGivenOnce(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		const all = clerks * orders
		if n := len(r.without.orders); n == all {
			t.Errorf("without a lock: %d different numbers for %d orders: nothing went wrong", n, all)
		}
		if n := len(r.with.orders); n != all || r.with.last != all {
			t.Errorf("with the lock: %d different numbers, the last %d, for %d orders", n, r.with.last, all)
		}
	})
}
