package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A process that waits does not try without a pause to reach a database that is down.
func TestWaitingWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	proxy, prefix := srv.Proxy(t), unique()
	var dials atomic.Int64
	p := newPool(t, proxy.URL(), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, addr)
		}
	})
	d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithLiveness(10*time.Second))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	holder, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := holder.Acquire(t.Context(), r)
	ok(t, err)
	done, joined := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: "2", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }})
		done <- err
	}()
	<-joined
	proxy.Refuse()
	dials.Store(0)
	time.Sleep(2 * time.Second) // less than the liveness interval, also on a busy machine
	n := dials.Load()
	proxy.Heal()
	t.Logf("%d connections were tried in 2 s", n)
	if n == 0 || n > 100 { // polls, heartbeats, checks of the queue and the listener, each with its pause
		t.Errorf("%d connections were tried in 2 s", n)
	}
	ok(t, holder.Release(t.Context(), r.Hold(g.Token)))
	ok(t, <-done)
}
