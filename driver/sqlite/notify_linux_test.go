package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
	"github.com/lockerproject/locker/internal/testbed"
)

// A break notifies the holder's process at once, although it has no waiters and so does
// not poll, and long before it renews.
func TestBreakNotifiesHolder(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	holder := openAt(t, path, sqlite.WithSweep(time.Hour))
	type loss struct {
		h     driver.Hold
		cause error
	}
	losses := make(chan loss, 1)
	holder.NotifyLoss(func(h driver.Hold, cause error) { losses <- loss{h, cause} })
	r := driver.Request{Name: "a", ID: "1", TTL: time.Hour}
	g, err := holder.Acquire(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	awaitNotices(t, holder)
	other := openAt(t, path)
	took := testbed.Elapsed(func() {
		if err := other.Break(ctx, "a", g.Token); err != nil {
			t.Fatal(err)
		}
		select {
		case l := <-losses:
			if l.h.ID != r.ID || l.h.Name != r.Name || l.h.Token != g.Token || !errors.Is(l.cause, driver.ErrLost) {
				t.Errorf("notified of %+v: %v", l.h, l.cause)
			}
		case <-within(t).Done():
			t.Error("the holder was not notified of the break")
		}
	})
	if took > slack {
		t.Errorf("the holder was notified %v after the break", took)
	}
}
