package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestGuard(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, d, prefix := fresh(t, db)
		b, _ := join(t, db, prefix)
		for _, shared := range []bool{false, true} {
			const ttl = 2 * time.Second // enough to guard and extend it on a busy machine
			opts := []locker.Option{locker.WithTTL(ttl)}
			if shared {
				opts = append(opts, locker.Shared())
			}
			k := take(t, a, "a", append(opts, locker.WithoutRenewal())...)
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			must(t, d.Guard(t.Context(), tx, k))
			must(t, k.Extend(t.Context(), ttl)) // renewals go on
			waiting, cancel := context.WithTimeout(t.Context(), 2*ttl)
			if k, err := b.Acquire(waiting, "a"); err == nil {
				t.Errorf("granted %d while a transaction guards %v", k.Token(), shared)
			}
			cancel()
			must(t, tx.Commit())
			next := take(t, b, "a")
			tx, err = db.BeginTx(t.Context(), nil)
			must(t, err)
			if err := d.Guard(t.Context(), tx, k); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a late holder's transaction: %v", err)
			}
			must(t, tx.Rollback())
			must(t, next.Release(t.Context()))
		}
	})
}

// A lock that guards a transaction is released at once. That costs nobody else a lock or an
// answer, and nobody is granted the lock before the transaction has ended.
func TestReleaseOfAGuardedLock(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		db.SetMaxOpenConns(6)
		l, d, _, renewed := freshRenewing(t, db)
		for _, kind := range []string{"first", "shared"} {
			t.Run(kind, func(t *testing.T) {
				var opts []locker.Option
				if kind == "shared" { // a ticket after an anchor
					opts = append(opts, locker.Shared())
					anchor := take(t, l, kind, locker.Shared())
					defer func() { must(t, anchor.Release(t.Context())) }()
				}
				k := take(t, l, kind, opts...)
				other := take(t, l, "other", locker.WithTTL(5*time.Second))
				tx, err := db.BeginTx(t.Context(), nil)
				must(t, err)
				defer func() { _ = tx.Rollback() }()
				must(t, d.Guard(t.Context(), tx, k))
				if took := testbed.Elapsed(func() { must(t, k.Release(t.Context())) }); took > time.Second {
					t.Errorf("released after %v", took)
				}
				if kind == "shared" {
					k := take(t, l, kind, locker.Shared()) // it does not block readers
					must(t, k.Release(t.Context()))
					return
				}
				granted := make(chan struct{}, 10)
				var group sync.WaitGroup
				for range 10 {
					group.Go(func() {
						k, err := l.Acquire(t.Context(), kind)
						if err != nil {
							t.Error(err)
							return
						}
						granted <- struct{}{}
						if err := k.Release(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
				took := testbed.Elapsed(func() { _, err = l.TryAcquire(t.Context(), kind) })
				if !errors.Is(err, locker.ErrNotAcquired) {
					t.Errorf("tried to acquire what is guarded: %v", err)
				}
				if took > time.Second {
					t.Errorf("tried for %v", took)
				}
				renewed.await(t, other)
				select {
				case <-granted:
					t.Error("granted while a transaction guards")
				default:
				}
				must(t, tx.Commit())
				if took := testbed.Elapsed(func() { <-granted }); took > time.Second {
					t.Errorf("granted %v after the end of the transaction", took)
				}
				group.Wait()
				must(t, other.Release(t.Context()))
			})
		}
	})
}

// A transaction whose guard failed, because the lock was lost, delays nobody.
func TestGuardOfALostLock(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, _ := fresh(t, db)
		cycle(t, l, "g") // its anchor is left idle
		k := take(t, l, "g")
		must(t, k.Release(t.Context()))
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := d.Guard(t.Context(), tx, k); !errors.Is(err, driver.ErrLost) {
			t.Errorf("guarded by a lock that is lost: %v", err)
		}
		for _, name := range []string{"a", "g", "h", "zz"} {
			took := testbed.Elapsed(func() { must(t, take(t, l, name).Release(t.Context())) })
			if took > time.Second {
				t.Errorf("%s was acquired and released after %v", name, took)
			}
		}
	})
}

// A guarded transaction delays the release that the core sends when the lease is over.
func TestGuardHoldsUpTheReleaseOfALostLock(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, d, prefix := fresh(t, db)
		b, _ := join(t, db, prefix)
		k := take(t, a, "a", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
		for range 2 {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			must(t, d.Guard(t.Context(), tx, k))
			must(t, k.Extend(t.Context(), 2*time.Second))
		}
		<-k.Done()
		time.Sleep(300 * time.Millisecond) // its release has been sent
		waiting, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if k, err := b.Acquire(waiting, "a"); err == nil {
			t.Errorf("granted %d while transactions guard what was held", k.Token())
		}
	})
}

// A sweep removes the rows of crashed processes, however many there are.
func TestSweepOfMuch(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		must(t, take(t, l, "x").Release(t.Context()))
		query := "INSERT INTO " + prefix + "_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) VALUES "
		for i := range 1200 {
			if i > 0 {
				query += ","
			}
			query += fmt.Sprintf("('%[1]d','%[1]d','%[1]d',7,0,1,'','',0,0,1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6) - INTERVAL 10 SECOND)", i)
		}
		_, err := db.ExecContext(t.Context(), query)
		must(t, err)
		must(t, d.Sweep(t.Context()))
		if n := count(t, db, prefix+"_tickets"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// A lease that is over guards nothing, though its ticket is still there, since a transaction guards it from before. A sweep leaves it.
func TestGuardOfALeaseThatIsOver(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		k := take(t, l, "a", locker.WithTTL(time.Minute), locker.WithoutRenewal())
		must(t, d.Guard(t.Context(), begin(t, db), k))
		do(t, db, "UPDATE "+prefix+"_tickets SET expires_at = UTC_TIMESTAMP(6)")
		if err := d.Guard(t.Context(), begin(t, db), k); !errors.Is(err, driver.ErrLost) {
			t.Errorf("guarded: %v", err)
		}
		do(t, db, "UPDATE "+prefix+"_tickets SET expires_at = '2001-01-01'")
		must(t, d.Sweep(t.Context())) // which does not wait for the transaction
		if n := count(t, db, prefix+"_tickets"); n != 1 {
			t.Errorf("%d tickets, want 1", n)
		}
	})
}
