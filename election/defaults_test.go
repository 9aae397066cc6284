package election_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/memorytest"
)

// One leads at a time, whatever the defaults of the Locker are.
func TestDefaultsDoNotShareTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		var leaders atomic.Int64
		for range 2 {
			l, _ := b.Join(locker.WithDefaults(locker.Limit(3)))
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

// A leader leads until it steps down, and candidates keep their order, whatever the
// defaults of the Locker are.
func TestDefaultsDoNotEndATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		l, _ := b.Join(locker.WithDefaults(locker.WithoutRenewal(), locker.WithWait(time.Second), locker.WithOwner("me"), locker.WithMinHold(time.Hour)))
		var terms atomic.Int64
		order := make(chan int, 10)
		var stops []func() error
		for i := range 3 {
			e := candidate(t, l)
			stops = append(stops, running(t, e, func(ctx context.Context, term *election.Term) error {
				terms.Add(1)
				order <- i
				return untilEnd(ctx, term)
			}))
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		if n := terms.Load(); n != 1 {
			t.Errorf("%d terms of one leader", n)
		}
		for i, stop := range stops {
			if got := <-order; got != i {
				t.Errorf("leader %d after %d others", got, i)
			}
			_ = stop()
			synctest.Wait()
		}
	})
}

// Observers wait for the end of a term without a limit.
func TestDefaultsDoNotEndAnObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		l, _ := b.Join()
		running(t, candidate(t, l), untilEnd)
		o, _ := b.Join(locker.WithDefaults(locker.WithWait(0)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		for _, err := range candidate(t, o).Observe(ctx) {
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			synctest.Wait()
			b.Inspects.Store(0)
		}
		if n := b.Inspects.Load(); n > 10 {
			t.Errorf("%d inspections in ten minutes of one term", n)
		}
	})
}

// A margin that a function needs to end in may be longer than the leases of observers.
func TestObserveWithAWideSafetyMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := memorytest.New(t).Join(locker.WithSafetyMargin(5 * time.Second))
		e := candidate(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var terms []uint64
		var group sync.WaitGroup
		group.Go(func() {
			for leader, err := range e.Observe(ctx) {
				if err != nil && ctx.Err() == nil {
					t.Errorf("the observation ended: %v", err)
				}
				if err == nil && leader.Token != 0 {
					terms = append(terms, leader.Token)
				}
			}
		})
		stop := running(t, e, func(ctx context.Context, term *election.Term) error {
			select {
			case <-ctx.Done():
			case <-time.After(25 * time.Second):
			}
			return nil
		})
		group.Wait()
		_ = stop()
		if len(terms) != 3 {
			t.Errorf("observed %d terms, want 3", len(terms))
		}
	})
}
