package election_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
)

// One leads at a time, whatever the defaults of the Locker are.
func TestDefaultsDoNotShareTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var leaders atomic.Int64
		for range 2 {
			l, _ := b.join(locker.WithDefaults(locker.Limit(3)))
			running(t, candidate(t, l), func(ctx context.Context, term *election.Term) error {
				if leaders.Add(1) != 1 {
					t.Error("two leaders")
				}
				defer leaders.Add(-1)
				return untilEnd(ctx, term)
			})
		}
		time.Sleep(time.Minute)
	})
}
