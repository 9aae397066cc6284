package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

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

// Many transactions that fill the pool take a name that nobody has used, and some roll
// back: none of them is ended by a deadlock.
func TestAcquireTxInAFullPool(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		const size, rounds = 10, 20
		db := connect(t, srv, "")
		db.SetMaxOpenConns(size)
		l, d, _ := fresh(t, db)
		must(t, take(t, l, "x").Release(t.Context())) // makes the tables
		var inside [rounds]atomic.Int64
		for round := range rounds {
			txs := make([]*sql.Tx, size)
			for i := range txs {
				var err error
				txs[i], err = db.BeginTx(t.Context(), nil)
				must(t, err)
			}
			var group sync.WaitGroup
			for i, tx := range txs {
				group.Go(func() {
					defer func() { _ = tx.Rollback() }()
					if err := d.AcquireTx(t.Context(), tx, fmt.Sprint("job", round)); err != nil {
						t.Error(err)
						return
					}
					if inside[round].Add(1) != 1 {
						t.Error("two transactions hold a name")
					}
					time.Sleep(2 * time.Millisecond)
					inside[round].Add(-1)
					if i%2 == 0 {
						return
					}
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
		}
	})
}

// The database detects a deadlock of transactions although some of them wait for each
// other in the process.
func TestDeadlockOfAcquireTx(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		names := []string{"a", "b", "c"}
		db := connect(t, srv, "")
		db.SetMaxOpenConns(len(names))
		l, d, _ := fresh(t, db)
		must(t, take(t, l, "x").Release(t.Context())) // makes the tables
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		txs := make([]*sql.Tx, len(names))
		for i, name := range names {
			var err error
			txs[i], err = db.BeginTx(ctx, nil)
			must(t, err)
			defer func() { _ = txs[i].Rollback() }()
			must(t, d.AcquireTx(ctx, txs[i], name))
		}
		errs := make(chan error, len(names))
		for i, next := range []string{"b", "c", "b"} {
			go func() {
				err := d.AcquireTx(ctx, txs[i], next)
				if err != nil {
					_ = txs[i].Rollback()
				} else {
					err = txs[i].Commit()
				}
				errs <- err
			}()
			time.Sleep(100 * time.Millisecond) // so that the last waits for the first
		}
		deadlocks := 0
		for range names {
			var e *gomysql.MySQLError
			if err := <-errs; errors.As(err, &e) && e.Number == 1213 {
				deadlocks++
			} else {
				must(t, err)
			}
		}
		if deadlocks != 1 {
			t.Errorf("%d deadlocks, want 1", deadlocks)
		}
	})
}
