package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

func TestRun(t *testing.T) {
	if err := run(t.Context(), "memory://hello"); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "nosuch://"); err == nil {
		t.Error("no error for an unknown store")
	}
}

func TestHeldByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.Open("busy"))
		defer l.Close()
		if _, err := l.Acquire(t.Context(), "order:42"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := run(t.Context(), "memory://busy"); !errors.Is(err, locker.ErrNotAcquired) || time.Since(begun) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
