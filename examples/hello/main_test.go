package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

func TestRun(t *testing.T) {
	for range 2 { // the first has released the lock
		if err := run(t.Context(), "memory://hello"); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), "nosuch://"); err == nil {
		t.Error("no error for an unknown store")
	}
}

func TestWaitsWhileAnotherHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.Open("busy"))
		defer l.Close()
		lock, err := l.Acquire(t.Context(), "order:42")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := run(ctx, "memory://busy"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside a holder: %v", err)
		}
		time.AfterFunc(time.Minute, func() { _ = lock.Release(t.Context()) })
		begun := time.Now()
		if err := run(t.Context(), "memory://busy"); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
