package redis_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestShortExtendOfAGrant: Extend never shortens a lease, not even that of a waiter that has just
// been granted, which the store knows only for some seconds yet.
func TestShortExtendOfAGrant(t *testing.T) {
	t.Parallel()
	url := testbed.SharedRedis(t).URL()
	first, l := process(t, url), process(t, url)
	for _, shared := range []bool{false, true, false, true} {
		name, opts := newName(), []locker.Option{locker.WithTTL(time.Minute)}
		if shared {
			opts = append(opts, locker.Shared())
		}
		held := take(t, first, name)
		got := acquiring(t, l, name, opts...)
		await(t, first, name, 2)
		release(t, held)
		k := <-got
		if k == nil {
			t.Fatal("not granted")
		}
		if err := k.Extend(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		if q, err := first.Inspect(t.Context(), name); err != nil || len(q.Tickets) != 1 || !q.Tickets[0].Held {
			t.Errorf("shared=%t: after a short Extend the store has %+v, %v", shared, q.Tickets, err)
		}
		release(t, k)
	}
}
