package compose_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver/memory"
)

// The locks that the primary had granted, however many, do not keep the secondary from
// granting while they cannot be released.
func TestFallbackGrantsWithALargeBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := &flaky{Driver: memory.New()}
		l := locker.New(compose.Fallback(first, memory.New()), locker.WithReleaseTimeout(time.Second))
		ks := make([]*locker.Lock, 10_100)
		for i := range ks {
			k, err := l.Acquire(t.Context(), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			ks[i] = k
		}
		first.away.Store(true)
		var group sync.WaitGroup
		for some := range slices.Chunk(ks, 10) {
			group.Go(func() {
				for _, k := range some {
					if err := k.Release(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		release(t, acquire(t, l))
		first.away.Store(false)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
