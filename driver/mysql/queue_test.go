package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// lockGap begins a transaction that locks the gap after a queue's last entry, which stops the requests that enqueue within
// their statements.
func lockGap(t *testing.T, db *sql.DB, prefix, name string, last uint64) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	rows, err := tx.QueryContext(t.Context(), fmt.Sprintf(
		"SELECT seq FROM %s_tickets FORCE INDEX (queue) WHERE name = '%s' AND seq > %d FOR UPDATE", prefix, name, last))
	must(t, err)
	for rows.Next() {
		t.Error("somebody waits already")
	}
	must(t, rows.Err())
	must(t, rows.Close()) //nolint:sqlclosecheck // before the transaction goes on
	return tx
}

// A waiter whose insertion took most of its life keeps its place.
func TestSlowInsertion(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		const liveness = 8 * time.Second
		l, d, prefix := fresh(t, db, mysql.WithLiveness(liveness))
		k := take(t, l, "held")
		tx := lockGap(t, db, prefix, "held", k.Token())
		r := driver.Request{Name: "held", ID: "waiter-" + prefix, TTL: time.Minute, Wait: true}
		got := make(chan error, 1)
		go func() {
			_, err := d.Acquire(t.Context(), r)
			got <- err
		}()
		time.Sleep(liveness * 5 / 6)
		must(t, tx.Rollback())
		select {
		case err := <-got:
			t.Errorf("%v, while it waits", err)
			return
		case <-time.After(liveness):
		}
		must(t, k.Release(t.Context()))
		must(t, <-got)
		must(t, d.Release(t.Context(), r.Hold(0)))
	})
}

// While a ticket is being queued and not committed, tickets of other names can be taken. Under
// innodb_autoinc_lock_mode=1, MariaDB's default, some statements lock AUTO_INCREMENT of the table.
func TestEnqueueingLocksNoTable(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		k, next := take(t, l, "held"), take(t, l, "next")
		tx := lockGap(t, db, prefix, "held", k.Token())
		var group sync.WaitGroup
		defer group.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group.Go(func() {
			if k, err := l.Acquire(ctx, "held"); err == nil {
				_ = k.Release(context.Background())
			}
		})
		time.Sleep(300 * time.Millisecond)
		var other *locker.Lock
		var err error
		took := testbed.Elapsed(func() { other, err = l.TryAcquire(t.Context(), "of another queue") })
		must(t, err)
		if took > time.Second {
			t.Errorf("a free lock was taken after %v, while somebody enqueued for another", took)
		}
		must(t, other.Release(t.Context()))
		must(t, tx.Rollback())
		cancel()
		group.Wait()
		must(t, k.Release(t.Context()))
		must(t, next.Release(t.Context()))
	})
}

// A refused try has never been in the queue, even if a slow network delays it, and another request comes in between.
func TestRefusedTryIsNeverQueued(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		for _, limit := range []int{0, 2} {
			direct, d, prefix := fresh(t, connect(t, srv, ""))
			reader := take(t, direct, "a", locker.Shared())
			proxy := srv.Proxy(t)
			_, slow := join(t, connectTo(t, proxy.URL(), ""), prefix)
			warm := driver.Request{Name: "b", ID: "warm-1", TTL: time.Minute}
			g, err := slow.Acquire(t.Context(), warm)
			must(t, err)
			must(t, slow.Release(t.Context(), warm.Hold(g.Token)))
			proxy.Delay(150 * time.Millisecond)
			r := driver.Request{Name: "a", ID: "try-1", TTL: time.Minute, Shared: true, Limit: limit}
			answer := make(chan error, 1)
			go func() {
				_, err := slow.Acquire(t.Context(), r)
				answer <- err
			}()
			time.Sleep(600 * time.Millisecond) // it has read that it would be granted, and marks the anchor
			var rival *locker.Lock
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			if limit == 0 {
				group.Go(func() {
					if k, err := direct.Acquire(ctx, "a"); err == nil { // a writer
						_ = k.Release(context.Background())
					}
				})
			} else if rival, err = direct.TryAcquire(t.Context(), "a", locker.Limit(limit)); !errors.Is(err, locker.ErrNotAcquired) {
				must(t, err)
			}
			var seen []driver.Ticket
			for answered := false; !answered; time.Sleep(5 * time.Millisecond) {
				queue, ierr := d.Inspect(t.Context(), "a")
				must(t, ierr)
				if slices.ContainsFunc(queue, func(k driver.Ticket) bool { return k.ID == r.ID }) {
					seen = queue
				}
				select {
				case err = <-answer:
					answered = true
				default:
				}
			}
			switch { // it may also be granted, if the other request is late
			case err != nil && !errors.Is(err, driver.ErrNotAcquired):
				t.Error(err)
			case err != nil && seen != nil:
				t.Errorf("limit %d: the try was queued, and then refused: %+v", limit, seen)
			}
			proxy.Heal()
			cancel()
			group.Wait()
			if rival != nil {
				must(t, rival.Release(t.Context()))
			}
			must(t, reader.Release(t.Context()))
		}
	})
}

// A waiter that has waited long is granted as soon as a new one, even if others were ahead and gave up.
func TestHandOffAfterALongWait(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, _, prefix := fresh(t, db)
		const patient = 3 * time.Second
		var worst time.Duration
		var group sync.WaitGroup
		var mu sync.Mutex
		for i := range 10 {
			group.Go(func() {
				name := fmt.Sprint("n", i)
				k := take(t, a, name)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var others sync.WaitGroup
				for range 4 * (i % 2) { // others ahead
					b, _ := join(t, db, prefix)
					others.Go(func() { _, _ = b.Acquire(ctx, name) })
				}
				time.Sleep(time.Second)
				last, _ := join(t, db, prefix)
				granted := make(chan struct{})
				others.Go(func() {
					k, err := last.Acquire(t.Context(), name)
					close(granted)
					if err != nil {
						t.Error(err)
						return
					}
					_ = k.Release(context.Background())
				})
				time.Sleep(patient + time.Duration(i)*37*time.Millisecond)
				cancel()
				queued(t, a, name, 2) // cancelled tickets leave the queue a little later, and the last one waits for that
				_ = k.Release(t.Context())
				took := srv.Elapsed(func() { <-granted })
				others.Wait()
				mu.Lock()
				worst = max(worst, took)
				mu.Unlock()
			})
		}
		group.Wait()
		t.Logf("granted within %v of the release", worst)
		if worst > 100*time.Millisecond {
			t.Errorf("granted %v after the release", worst)
		}
	})
}

// A slow release revives no ticket: a lease that is over stays over, nobody holds it, and its row is removed.
func TestLapsedLeaseIsNotRevived(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		r := driver.Request{Name: "a", ID: "lapsed-1", TTL: 100 * time.Millisecond, Wait: true}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		time.Sleep(150 * time.Millisecond)
		if n := count(t, db, prefix+"_tickets"); n != 1 {
			t.Fatalf("%d rows, want that of the lease that is over", n)
		}
		for _, err := range []error{d.Renew(t.Context(), r.Hold(g.Token), time.Minute), d.Renew(t.Context(), r.Hold(0), time.Minute)} {
			if !errors.Is(err, driver.ErrLost) {
				t.Errorf("renewed: %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if g, err := d.Acquire(ctx, r); err == nil && g.Asked.Before(time.Now().Add(-5*time.Second)) || err != nil && !errors.Is(err, driver.ErrLost) {
			t.Errorf("the ticket was acquired again: %+v, %v", g, err)
		}
		next := driver.Request{Name: "a", ID: "next-1", TTL: time.Minute, Wait: true}
		if g, err := d.Acquire(t.Context(), next); err != nil {
			t.Error(err)
		} else {
			must(t, d.Release(t.Context(), next.Hold(g.Token)))
		}
	})
}

// A ticket with a minimum hold outlives the driver that took it, and ends by itself.
func TestMinHoldOutlivesTheDriver(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		address := srv.URL()
		prefix := fmt.Sprintf("h%d", prefixes.Add(1))
		d, err := openURL(t.Context(), address, prefix)
		must(t, err)
		const hold = time.Second
		r := driver.Request{Name: "a", ID: "hold-1", TTL: hold, MinHold: hold}
		begun := time.Now()
		_, err = d.Acquire(t.Context(), r) // which creates the tables first
		must(t, err)
		var (
			other driver.Driver
			g     driver.Grant
		)
		took := testbed.Elapsed(func() {
			must(t, d.Close())
			other, err = openURL(t.Context(), address, prefix)
			must(t, err)
			g, err = other.Acquire(t.Context(), driver.Request{Name: "a", ID: "next-1", TTL: time.Minute, Wait: true})
		})
		defer func() { must(t, other.Close()) }()
		must(t, err)
		if kept := time.Since(begun); kept < hold {
			t.Errorf("granted after %v, want %v", kept, hold)
		}
		if crash := driver.BoundsOf(other, hold).Crash; took > crash {
			t.Errorf("granted %v after the lease had begun, want at most %v", took, crash)
		}
		must(t, other.Release(t.Context(), driver.Hold{Name: "a", ID: "next-1", Token: g.Token}))
	})
}

// A lease that is shortened ends then, for those who wait too, and is not made longer.
func TestShortenedLease(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		_, other := join(t, db, prefix)
		r := driver.Request{Name: "a", ID: "short-1", TTL: time.Minute, MinHold: time.Second}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		joined, granted := make(chan struct{}), make(chan error, 1)
		next := driver.Request{Name: "a", ID: "next-1", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }}
		go func() {
			_, err := other.Acquire(context.WithoutCancel(t.Context()), next)
			granted <- err
		}()
		<-joined
		if err := d.Shorten(t.Context(), next.Hold(0), time.Second); !errors.Is(err, driver.ErrLost) {
			t.Errorf("what waits was shortened: %v", err)
		}
		const left = 2 * time.Second
		begun := time.Now()
		must(t, d.Shorten(t.Context(), r.Hold(g.Token), left))
		must(t, d.Shorten(t.Context(), r.Hold(g.Token), time.Minute))
		took := testbed.Elapsed(func() { must(t, <-granted) })
		if kept := time.Since(begun); kept < left {
			t.Errorf("granted after %v, want %v", kept, left)
		}
		if bound := driver.BoundsOf(d, left).Crash; took > bound {
			t.Errorf("granted after %v, want %v at most", took, bound)
		}
		if err := d.Shorten(t.Context(), r.Hold(g.Token), time.Second); !errors.Is(err, driver.ErrLost) {
			t.Errorf("what is gone was shortened: %v", err)
		}
		must(t, other.Release(t.Context(), next.Hold(0)))
	})
}

// Tries obey the grant rule in any isolation level: at most so many permits, or one writer.
func TestTriesInAnyIsolation(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		for _, level := range []string{"REPEATABLE-READ", "READ-COMMITTED", "READ-UNCOMMITTED", "SERIALIZABLE"} {
			db := connect(t, srv, isolated(t, level))
			a, _, prefix := fresh(t, db)
			b, _ := join(t, db, prefix)
			var readers, writers, granted atomic.Int64
			var group sync.WaitGroup
			for g := range 12 {
				l := []*locker.Client{a, b}[g%2]
				group.Go(func() {
					for range 30 {
						opts, count, most := []locker.Option{locker.Limit(3)}, &readers, int64(3)
						if g > 8 {
							opts, count, most = nil, &writers, 1
						}
						k, err := l.TryAcquire(t.Context(), "a", opts...)
						if errors.Is(err, locker.ErrNotAcquired) {
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						granted.Add(1)
						if n := count.Add(1); n > most || readers.Load() > 0 && writers.Load() > 0 {
							t.Errorf("%s: %d readers and %d writers hold", level, readers.Load(), writers.Load())
						}
						time.Sleep(time.Millisecond)
						count.Add(-1)
						if err := k.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if granted.Load() == 0 {
				t.Errorf("%s: nothing was granted", level)
			}
		}
	})
}
