package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// An Acquire that is cancelled at any moment, also that of the answer, leaves no ticket if its error says
// so.
func TestGivenUpAtTheMomentOfTheAnswer(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		const series = 4 // beside each other: most of a round is waiting
		for first := range series {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				d, direct, proxy := onProxy(t, srv)
				for i := first; i < 40; i += series {
					giveUp(t, d, direct, proxy, i)
				}
			})
		}
	})
}

// giveUp cancels an Acquire after some milliseconds, the more the greater i is.
func giveUp(t *testing.T, d, direct *mysql.Driver, proxy *testbed.Proxy, i int) {
	t.Helper()
	const way = 20 * time.Millisecond
	warm := request(fmt.Sprint("warm", i), true)
	g, err := d.Acquire(t.Context(), warm)
	must(t, err)
	must(t, d.Release(t.Context(), warm.Hold(g.Token)))
	r := request(fmt.Sprint("given-up", i), i%2 == 0)
	proxy.Delay(way)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*2*time.Millisecond)
	g, err = d.Acquire(ctx, r)
	cancel()
	if err == nil {
		must(t, d.Release(t.Context(), r.Hold(g.Token)))
	} else if !errors.Is(err, driver.ErrNoTicket) {
		must(t, ignoreLost(removeTicket(t.Context(), d, r.Hold(0))))
	}
	proxy.Heal()
	time.Sleep(3 * way) // all requests have arrived
	queue, err2 := direct.Inspect(t.Context(), "a")
	must(t, err2)
	if len(queue) > 0 {
		t.Fatalf("%d: acquire: %v: a ticket is left: %+v", i, err, queue)
	}
}
