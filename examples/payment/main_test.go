package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryPaymentIsMadeOnce(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		if r.without.charges <= payments {
			t.Errorf("without a lock: %d charges for %d payments: nothing went wrong", r.without.charges, payments)
		}
		if r.with.charges != payments || len(r.with.answers) != payments {
			t.Errorf("with the lock: %d charges and %d receipts for %d payments", r.with.charges, len(r.with.answers), payments)
		}
	})
}
