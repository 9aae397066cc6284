package main

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNobodyOverlaps(t *testing.T) {
	scenariotest.Run(t, func(ctx context.Context, url string) (result, error) {
		return run(ctx, url, url+"-new") // another space, or another prefix
	}, func(t *testing.T, r result) {
		if r.straight.most != 2 || r.straight.beside == 0 {
			t.Errorf("straight: %v: want 2 at the same time", r.straight)
		}
		if r.bySteps.most != 1 || r.bySteps.beside != 0 {
			t.Errorf("by steps: %v: want 1 at the same time", r.bySteps)
		}
		if n := r.bySteps.falling; n != 0 {
			t.Errorf("%d tokens are not greater than those before them in their step", n)
		}
		for i, s := range r.bySteps.steps {
			if s.writes == 0 {
				t.Errorf("step %d: nothing was written", i+1)
			}
			if (i >= 2) != (s.least > base) {
				t.Errorf("step %d: tokens %d to %d, base %d", i+1, s.least, s.greatest, uint64(base))
			}
			if (i == 1) != (s.refused > 0) {
				t.Errorf("step %d: %d writes refused: want some in step 2 only", i+1, s.refused)
			}
		}
	})
}
