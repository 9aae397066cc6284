package sqlite_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// TestBreakAfterTheFirstGrant breaks the first lock of a process as soon as it has it: the process listens by then.
func TestBreakAfterTheFirstGrant(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	breaker := openAt(t, path)
	for i := range 20 {
		holder := openAt(t, path)
		lost := make(chan driver.Hold, 1)
		holder.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
		r := driver.Request{Name: "a", ID: "held", TTL: time.Minute}
		g, err := holder.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := breaker.Break(t.Context(), "a", g.Token); err != nil {
			t.Fatal(err)
		}
		select {
		case <-lost:
		case <-time.After(10 * time.Second):
			t.Fatalf("process %d is not notified of the break", i)
		}
	}
}
