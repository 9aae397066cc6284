package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStandbyTakesOver(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		led := make(map[int]bool)
		var last uint64
		for _, e := range r {
			if led[e.who] || e.token <= last {
				t.Errorf("a candidate led twice, or with a token that is not greater: %v", r)
			}
			led[e.who], last = true, e.token
		}
		if len(led) != candidates {
			t.Errorf("%d of %d candidates led: %v", len(led), candidates, r)
		}
	})
}
