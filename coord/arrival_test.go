package coord_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/memorytest"
)

// lossy is a store that executes the first request for a ticket without answering
// it, and that refuses every release for five seconds.
type lossy struct {
	*memory.Driver
	begun time.Time
	lost  atomic.Bool
}

func (s *lossy) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := s.Driver.Acquire(ctx, r)
	if s.lost.CompareAndSwap(false, true) {
		return driver.Grant{}, memorytest.ErrDown
	}
	return g, err
}

func (s *lossy) Release(ctx context.Context, h driver.Hold) error {
	if time.Since(s.begun) < 5*time.Second {
		return memorytest.ErrDown
	}
	return s.Driver.Release(ctx, h)
}

// A party counts once, also while the store still has a ticket of it whose answer was
// lost.
func TestBarrierCountsAPartyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := memorytest.New(t)
		l := locker.New(&lossy{Driver: bed.Space.Join(), begun: time.Now()})
		defer l.Close()
		var group sync.WaitGroup
		group.Go(func() {
			if err := barrier(t, l, "b", 2).Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := barrier(t, newLocker(bed), "b", 2).Wait(ctx); err != nil {
			t.Errorf("the first of two has not waited for the second: %v", err)
		}
		group.Wait()
	})
}
