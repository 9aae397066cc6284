package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

func TestReleases(*testing.T) {
	main()
	main() // the first has released the lock
}

func TestWaitsWhileAnotherHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := locker.Open(t.Context(), "memory://")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		lock, err := l.Acquire(t.Context(), "order:42")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { _ = lock.Release(t.Context()) })
		begun := time.Now()
		if main(); time.Since(begun) != time.Minute {
			t.Errorf("beside a holder it took %v", time.Since(begun))
		}
	})
}
