package redlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// Of three tries at once for a free lock, each of which holds on the node that it has reached first, one gets it. So it is where
// a process runs beside each node, and all begin at the same time.
func TestEachTryHoldsOnOneNode(t *testing.T) {
	t.Parallel()
	for _, kind := range []driver.Request{{}, {Shared: true, Limit: 1}} {
		t.Run(fmt.Sprint("shared ", kind.Shared), func(t *testing.T) {
			t.Parallel()
			x := newTrio(t)
			var ways [][]*testbed.Proxy
			got := make(chan error, 3)
			for first := range 3 {
				var own []*testbed.Proxy
				var clients []redis.UniversalClient
				for _, m := range x.members {
					way := m.Proxy(t)
					c := redis.NewClient(&redis.Options{Addr: way.Addr(), DialerRetries: 1})
					t.Cleanup(func() { _ = c.Close() })
					own, clients = append(own, way), append(clients, c)
				}
				ways = append(ways, own)
				d, err := New(clients, patient)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = d.Close() })
				if err := d.mayUse(t.Context(), "name", true); err != nil {
					t.Fatal(err)
				}
				d.numbers.above(uint64(time.Now().Add(time.Hour).UnixMicro())) //nolint:gosec // positive: no guess is too small
				for node, way := range own {
					if node != first {
						way.Cut()
					}
				}
				go func() {
					_, err := d.Acquire(context.Background(), driver.Request{
						Name: "name", ID: fmt.Sprint("try-", first), TTL: time.Minute, Shared: kind.Shared, Limit: kind.Limit,
					})
					got <- err
				}()
			}
			x.until("held on each node", func() bool { return x.holds(0) && x.holds(1) && x.holds(2) })
			for _, own := range ways {
				for _, way := range own {
					way.Heal()
				}
			}
			granted := 0
			for range 3 {
				switch err := <-got; {
				case err == nil:
					granted++
				case !errors.Is(err, driver.ErrNotAcquired):
					t.Error(err)
				}
			}
			if granted != 1 {
				t.Errorf("%d of three tries got what was free", granted)
			}
		})
	}
}
