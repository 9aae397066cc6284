package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// TestBreakAfterTheFirstGrant breaks the first lock of a process as soon as it has it: the process listens by then.
func TestBreakAfterTheFirstGrant(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.db")
	breaker, err := sqlite.New(path)
	if err != nil {
		t.Fatal(err)
	}
	defer breaker.Close()
	for i := range 20 {
		holder, err := sqlite.New(path)
		if err != nil {
			t.Fatal(err)
		}
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
		if err := holder.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
