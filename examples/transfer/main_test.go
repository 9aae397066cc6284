package main

import (
	"maps"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMoneyStays(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		const all = (payers + refunders) * transfers
		without, oneByOne, together := r[0], r[1], r[2]
		if maps.Equal(without.balances, together.balances) { // the sum may be right by chance
			t.Errorf("without a lock: all is where it should be: nothing went wrong")
		}
		if oneByOne.made == all {
			t.Errorf("one lock, then the next: all %d transfers are made: nothing went wrong", all)
		}
		if together.made != all || together.total() != money {
			t.Errorf("AcquireAll: %d of %d transfers made; %d of %d is there", together.made, all, together.total(), money)
		}
		for _, b := range []*bank{oneByOne, together} {
			if b.total() != money {
				t.Errorf("with locks %d of %d is there", b.total(), money)
			}
		}
	})
}
