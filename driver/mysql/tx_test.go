package mysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestAcquireTx(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		one, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = one.Rollback() }()
		two, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = two.Rollback() }()
		must(t, d.AcquireTx(t.Context(), one, "a"))
		must(t, d.AcquireTx(t.Context(), one, "a")) // its own
		must(t, d.AcquireTx(t.Context(), two, "A")) // another name
		if err := d.TryAcquireTx(t.Context(), two, "a"); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("what another transaction holds: %v", err)
		}
		got := make(chan error, 1)
		go func() { got <- d.AcquireTx(context.WithoutCancel(t.Context()), two, "a") }()
		select {
		case err := <-got:
			t.Errorf("two transactions hold a: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		must(t, d.Sweep(t.Context()))
		must(t, one.Commit())
		must(t, <-got)
		must(t, two.Rollback())
		must(t, d.Sweep(t.Context()))
		if n := count(t, db, prefix+"_tx"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// A transaction in the only connection makes its row itself.
func TestAcquireTxInAPoolOfOne(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		db.SetMaxOpenConns(1)
		l, d, _ := fresh(t, db)
		must(t, take(t, l, "x").Release(t.Context())) // makes the tables
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		must(t, d.AcquireTx(t.Context(), tx, "a"))
		must(t, d.TryAcquireTx(t.Context(), tx, "b"))
	})
}

func TestGuard(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, d, prefix := fresh(t, db)
		b, _ := join(t, db, prefix)
		for _, shared := range []bool{false, true} {
			opts := []locker.Option{locker.WithTTL(time.Second)}
			if shared {
				opts = append(opts, locker.Shared())
			}
			for range 3 { // its row is one that was kept
				must(t, take(t, a, "a").Release(t.Context()))
			}
			k := take(t, a, "a", append(opts, locker.WithoutRenewal())...)
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			must(t, d.Guard(t.Context(), tx, k))
			must(t, k.Extend(t.Context(), 1500*time.Millisecond)) // renewals go on
			waiting, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
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
