package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// batchCounter counts the statements that are batches, and those that a deadlock has ended.
type batchCounter struct{ batches, deadlocks *atomic.Int64 }

func (c batchCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "_batch"+postgres.Version) {
		c.batches.Add(1)
	}
	return ctx
}

func (c batchCounter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if postgres.Code(data.Err) == "40P01" {
		c.deadlocks.Add(1)
	}
}

// newBatching makes a driver whose pool has connections for more than the batches, and that knows the database's clock.
func newBatching(t *testing.T, url, prefix string) (*postgres.Driver, batchCounter) {
	t.Helper()
	n := batchCounter{new(atomic.Int64), new(atomic.Int64)}
	p := newPool(t, url, func(c *pgxpool.Config) {
		c.MaxConns = 32
		c.ConnConfig.Tracer = n
	})
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	r := driver.Request{Name: "warm", ID: unique(), TTL: time.Minute, Wait: true}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	ok(t, d.Release(t.Context(), r.Hold(g.Token)))
	return d, n
}

// cycles acquires and releases each of n names, again and again, from a goroutine each.
func cycles(t *testing.T, d driver.Driver, n, times int) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for range times {
				r := driver.Request{Name: fmt.Sprint("own", i), ID: unique(), TTL: time.Minute, Wait: true}
				g, err := d.Acquire(t.Context(), r)
				if err == nil {
					err = d.Release(t.Context(), r.Hold(g.Token))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// Transactions of others hold the lock of a name, rows of tickets, and a name by AcquireTx. This process wants all of
// them meanwhile. No other name waits for that.
func TestBatchesWaitForNobody(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, n := newBatching(t, testbed.SharedPostgres(t).URL(), prefix)
	_, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	acquire := func(name string) driver.Hold {
		r := driver.Request{Name: name, ID: unique(), TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		ok(t, err)
		return r.Hold(g.Token)
	}
	var holds []driver.Hold
	for i := range 4 {
		holds = append(holds, acquire(fmt.Sprint("row", i)))
	}
	tx := begin(t, p)
	_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock("+prefix+"_key"+postgres.Version+"('held'))")
	ok(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+prefix+"_tickets WHERE name LIKE 'row%' FOR UPDATE")
	ok(t, err)
	ok(t, d.AcquireTx(t.Context(), tx, "own0"))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var others sync.WaitGroup
	for _, h := range holds {
		others.Go(func() {
			if err := d.Release(t.Context(), h); err != nil {
				t.Error(err)
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for ctx.Err() == nil {
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond+rand.N(100*time.Millisecond))
				_, _ = d.Acquire(short, driver.Request{Name: "held", ID: unique(), TTL: time.Second})
				cancel()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		cycles(t, d, 16, 20)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("other names wait for the transaction")
	}
	cancel()
	ok(t, tx.Rollback(t.Context()))
	<-done
	others.Wait()
	if n.batches.Load() == 0 {
		t.Error("nothing was sent in a batch")
	}
}

// Two processes want the same names at once, in opposite orders: there is no deadlock.
func TestBatchesOfTwoProcesses(t *testing.T) {
	t.Parallel()
	prefix := unique()
	const names = 24
	var inside [names]atomic.Int32
	var all sync.WaitGroup
	for process := range 2 {
		d, n := newBatching(t, testbed.SharedPostgres(t).URL(), prefix)
		all.Go(func() {
			var group sync.WaitGroup
			for i := range names {
				if process == 1 {
					i = names - 1 - i
				}
				group.Go(func() {
					for range 50 {
						r := driver.Request{Name: fmt.Sprint("both", i), ID: unique(), TTL: time.Minute, Wait: true, Renewed: true}
						g, err := d.Acquire(t.Context(), r)
						if err != nil {
							t.Error(err)
							return
						}
						if n := inside[i].Add(1); n != 1 {
							t.Errorf("%d hold %s", n, r.Name)
						}
						inside[i].Add(-1)
						if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			if n.deadlocks.Load() > 0 || n.batches.Load() == 0 {
				t.Errorf("%d deadlocks, %d batches", n.deadlocks.Load(), n.batches.Load())
			}
		})
	}
	all.Wait()
}

// Callers leave while their requests wait for a batch or are in one, and connections break: no ticket is left.
func TestBatchesThatCallersLeave(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	proxy, prefix := srv.Proxy(t), unique()
	d, n := newBatching(t, proxy.URL(), prefix)
	_, p := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			for range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(12*time.Millisecond))
				if k, err := l.Acquire(ctx, fmt.Sprint("left", i), locker.WithTTL(time.Minute)); err == nil {
					_ = k.Release(ctx) // within a bound of its own
				}
				cancel()
			}
		})
	}
	group.Go(func() {
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			proxy.Reset()
		}
	})
	group.Wait()
	waitFor(t, "no ticket is left", func() bool { return countTickets(t, p, prefix) == 0 })
	if n.batches.Load() == 0 {
		t.Error("nothing was sent in a batch")
	}
}
