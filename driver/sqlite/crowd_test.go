package sqlite_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/sqlite"
)

// A lease is renewed although many acquisitions of the same process wait for the file: the renewal is due when at
// most half of them are granted, and goes before the others.
func TestRenewalGoesFirst(t *testing.T) {
	t.Parallel()
	const crowd, takes = 750, 2 * time.Millisecond
	var granted atomic.Int64
	renewed := make(chan int64, 100) // how many were granted by then
	l := locker.New(openAt(t, newPath(t), sqlite.WithInterceptor(func(_ context.Context, transaction func() error) error {
		time.Sleep(takes)
		return transaction()
	})), locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventRenewed && e.Name == "held" {
			renewed <- granted.Load()
		}
	}))
	t.Cleanup(func() { _ = l.Close() })
	k := acquire(t, l, "held", locker.WithTTL(2250*time.Millisecond)) // renewed after a third
	var group sync.WaitGroup
	for i := range crowd {
		group.Go(func() {
			if k, err := l.Acquire(within(t), fmt.Sprint("other ", i)); err == nil {
				granted.Add(1)
				_ = k.Release(ctx)
			}
		})
	}
	group.Wait()
	if err := k.Err(); err != nil {
		t.Errorf("beside %d acquisitions: %v", crowd, err)
	}
	select {
	case n := <-renewed:
		if n > crowd*3/4 {
			t.Errorf("renewed after %d of %d acquisitions", n, crowd)
		}
	default:
		t.Errorf("not renewed beside %d acquisitions", crowd)
	}
}
