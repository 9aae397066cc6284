package sqlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/sqlite"
)

// A lease is renewed in time although many acquisitions of the same process wait for
// the file.
func TestRenewalGoesFirst(t *testing.T) {
	t.Parallel()
	const crowd, takes = 1500, 2 * time.Millisecond
	l := clientAt(t, newPath(t), sqlite.WithInterceptor(func(_ context.Context, transaction func() error) error {
		time.Sleep(takes)
		return transaction()
	}))
	k := acquire(t, l, "held", locker.WithTTL(3*time.Second))
	var group sync.WaitGroup
	for i := range crowd {
		group.Go(func() {
			if k, err := l.Acquire(within(t), fmt.Sprint("other ", i)); err == nil {
				_ = k.Release(ctx)
			}
		})
	}
	group.Wait()
	if err := k.Err(); err != nil {
		t.Errorf("beside %d acquisitions: %v", crowd, err)
	}
}
