package locker_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// Background tasks that have something to do at once run side by side in a bubble, also under
// the race detector.
func TestRepeatAtOnceInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				steps := 0
				done := locker.Repeat(t.Context(), 0, nil, func() (time.Duration, bool) {
					steps++
					return 0, steps < 5000
				})
				if !done || steps != 5000 {
					t.Errorf("after %d steps: %t", steps, done)
				}
			})
		}
		group.Wait()
	})
}
