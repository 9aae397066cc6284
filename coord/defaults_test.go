package coord_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/coord"
	"github.com/lockerproject/locker/internal/memorytest"
)

// A Locker whose locks are shared by default runs the function once all the same.
func TestOnceIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		runs := 0
		for range 2 {
			l, _ := b.Join(locker.WithDefaults(locker.Shared()))
			if _, err := coord.Once(t.Context(), l, "job", time.Minute, func(context.Context) error { runs++; return nil }); err != nil {
				t.Error(err)
			}
		}
		if runs != 1 {
			t.Errorf("%d runs in one period", runs)
		}
	})
}

// Parties come together whatever the defaults of their Locker are.
func TestDefaultsDoNotLimitTheParties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := memorytest.New(t).Join(locker.WithDefaults(locker.Limit(1)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a := latch(t, l, 2, time.Hour)
		for _, party := range []string{"a", "b"} {
			if err := a.CountDown(ctx, party); err != nil {
				t.Error(err)
			}
		}
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				if err := barrier(t, l, "b", 2).Wait(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
}

// Parties that wait for longer than their leases come together, and a run lasts, whatever
// the defaults of the Locker are.
func TestDefaultsDoNotEndAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := memorytest.New(t).Join(locker.WithDefaults(locker.WithoutRenewal(), locker.WithWait(0), locker.WithOwner("me"), locker.WithMinHold(time.Hour)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		b := barrier(t, l, "b", 2)
		var group sync.WaitGroup
		for i := range 2 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Minute)
				if err := b.Wait(ctx); err != nil {
					t.Errorf("party %d: %v", i, err)
				}
			})
		}
		group.Wait()
		ran, err := coord.Once(ctx, l, "job", time.Minute, func(ctx context.Context) error {
			time.Sleep(5 * time.Minute)
			return context.Cause(ctx)
		})
		if err != nil || !ran {
			t.Errorf("ran: %v, %v", ran, err)
		}
	})
}

// Parties wait, and a job runs, also if the safety margin of the Locker is longer than the
// leases that the caller does not choose.
func TestWideSafetyMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := memorytest.New(t).Join(locker.WithSafetyMargin(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		b, err := coord.NewBarrier(l, "b", 2, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		a := latch(t, l, 2, time.Hour)
		var group sync.WaitGroup
		for i, party := range []string{"a", "b"} {
			group.Go(func() {
				time.Sleep(time.Duration(i) * time.Minute)
				if err := a.CountDown(ctx, party); err != nil {
					t.Error(err)
				}
				if err := a.Wait(ctx); err != nil {
					t.Error(err)
				}
				if err := b.Wait(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for i := range 2 {
			ran, err := coord.Once(ctx, l, "job", 10*time.Minute, func(context.Context) error { return nil })
			if err != nil || ran != (i == 0) {
				t.Errorf("call %d: ran %v, %v", i, ran, err)
			}
		}
		if _, err := coord.Once(ctx, l, "short", time.Minute, func(context.Context) error { return nil }); !errors.Is(err, locker.ErrInvalidOption) {
			t.Errorf("a period within the margin: %v", err)
		}
	})
}
