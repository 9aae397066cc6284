package coord_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/memorytest"
)

// A party whose observer panics while it waits does not count any more.
func TestPanicAtABarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := memorytest.New(t)
		l, _ := bed.Join(locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventAcquired && e.Name == "b#poll" {
				panic("observer")
			}
		}))
		panicked := true
		func() {
			defer func() { _ = recover() }()
			_ = barrier(t, l, "b", 2).Wait(t.Context())
			panicked = false
		}()
		time.Sleep(time.Second)
		if names, err := bed.Space.List(t.Context()); !panicked || err != nil || len(names) != 0 {
			t.Errorf("panicked: %t; left: %q, %v", panicked, names, err)
		}
	})
}
