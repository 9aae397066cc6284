package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
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

// A program that takes locks in transactions alone leaves no rows.
func TestAcquireTxIsSwept(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		d.SweepEvery(time.Second)
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		must(t, d.AcquireTx(t.Context(), tx, "a"))
		must(t, tx.Commit())
		for late := time.Now().Add(20 * time.Second); count(t, db, prefix+"_tx") > 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatal("the row is left")
			}
		}
	})
}

// The row for a transaction in the only connection is made with one beside it.
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

// Transactions that have the only connections that their accounts may have insert the row of a name themselves, and exclude each
// other. Without tables the reason is given.
func TestAcquireTxWithoutAFurtherConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		_, maker, prefix := fresh(t, connect(t, srv, ""))
		var txs []*sql.Tx
		var ds []*mysql.Driver
		for range 2 {
			db := connectTo(t, fewConnections(t, srv, 1), "")
			_, d := join(t, db, prefix)
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			txs, ds = append(txs, tx), append(ds, d)
		}
		if err := ds[0].AcquireTx(t.Context(), txs[0], "a"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("without tables: %v", err)
		}
		must(t, maker.Ping(t.Context()))
		must(t, ds[0].AcquireTx(t.Context(), txs[0], "a"))
		got := make(chan error, 1)
		go func() { got <- ds[1].AcquireTx(context.WithoutCancel(t.Context()), txs[1], "a") }()
		select {
		case err := <-got:
			t.Errorf("two transactions hold a: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		must(t, txs[0].Rollback())
		must(t, <-got)
		if err := ds[1].TryAcquireTx(t.Context(), txs[1], "b"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a try that needs another connection: %v", err)
		}
	})
}

// Where the server lets no statement wait for a lock, a transaction that waits does not send one after the other.
func TestAcquireTxWithoutLockWaits(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMariaDB(t) // MySQL waits for a second at least
	db := connect(t, srv, "?innodb_lock_wait_timeout=0")
	_, d, _ := fresh(t, db)
	one, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, d.AcquireTx(t.Context(), one, "a"))
	two, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = two.Rollback() }()
	time.AfterFunc(time.Second, func() { _ = one.Rollback() })
	must(t, d.AcquireTx(t.Context(), two, "a"))
	var name string
	var n int
	must(t, two.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_insert'").Scan(&name, &n))
	if n > 30 {
		t.Errorf("%d statements were sent in a second", n)
	}
}

// A name that is too long is refused, and not taken for another one.
func TestAcquireTxOfALongName(t *testing.T) {
	t.Parallel()
	db := connect(t, testbed.SharedMariaDB(t), "?sql_mode=%27%27")
	_, d, _ := fresh(t, db)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	name := strings.Repeat("n", 512)
	must(t, d.TryAcquireTx(t.Context(), tx, name))
	for _, acquire := range []func(context.Context, *sql.Tx, string) error{d.TryAcquireTx, d.AcquireTx} {
		if err := acquire(t.Context(), tx, name+"x"); err == nil || errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("513 bytes: %v", err)
		}
	}
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

// Where a lock wait that times out rolls back the transaction (innodb_rollback_on_timeout), nobody is told that a lock
// was taken, or only refused, after what the transaction has written is gone.
func TestAcquireTxWhereATimeoutRollsBack(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...testbed.Option) *testbed.Server{"MariaDB": testbed.MariaDB, "MySQL": testbed.MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, testbed.Args("--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1"))
			db := connect(t, srv, "")
			_, d, _ := fresh(t, db)
			do(t, db, "CREATE TABLE work (n INT) ENGINE=InnoDB")
			for _, pool := range []int{0, 2} {
				for verb, acquire := range map[string]func(context.Context, *sql.Tx, string) error{"try": d.TryAcquireTx, "acquire": d.AcquireTx} {
					t.Run(fmt.Sprint(verb, pool), func(t *testing.T) {
						do(t, db, "DELETE FROM work")
						one, err := db.BeginTx(t.Context(), nil)
						must(t, err)
						defer func() { _ = one.Rollback() }()
						must(t, d.AcquireTx(t.Context(), one, "a"))
						two, err := db.BeginTx(t.Context(), nil)
						must(t, err)
						defer func() { _ = two.Rollback() }()
						_, err = two.ExecContext(t.Context(), "INSERT INTO work VALUES (1)")
						must(t, err)
						db.SetMaxOpenConns(pool)
						defer db.SetMaxOpenConns(0)
						done := make(chan error, 1)
						go func() { done <- acquire(context.WithoutCancel(t.Context()), two, "a") }()
						if verb == "acquire" {
							time.Sleep(1500 * time.Millisecond) // the wait has timed out
						}
						err = nil
						if verb == "try" {
							err = <-done
						}
						must(t, one.Commit())
						if verb == "acquire" {
							err = <-done
						}
						var n int
						must(t, two.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM work").Scan(&n))
						switch {
						case err == nil && verb == "try":
							t.Error("two transactions hold a")
						case n == 0 && (err == nil || errors.Is(err, driver.ErrNotAcquired)):
							t.Errorf("%v, and what the transaction has written is gone", err)
						case n == 0 && !strings.Contains(err.Error(), "innodb_rollback_on_timeout"):
							t.Errorf("the error is %v", err)
						case n > 0 && verb == "try" && !errors.Is(err, driver.ErrNotAcquired):
							t.Errorf("try: %v", err)
						}
						if verb == "try" && pool == 0 && n == 0 {
							t.Errorf("a try rolled back the transaction: %v", err)
						}
					})
				}
			}
		})
	}
}

// In sessions with sql_safe_updates the rows of AcquireTx, and of tickets, are swept, too.
func TestSweepWithSafeUpdates(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "?sql_safe_updates=1")
		_, d, prefix := fresh(t, db)
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		must(t, d.AcquireTx(t.Context(), tx, "a"))
		must(t, tx.Commit())
		for _, id := range []string{"crashed", "waiter"} { // the queue of one that waited
			_, err := d.Acquire(t.Context(), driver.Request{Name: "c", ID: id, TTL: time.Second, Wait: true})
			must(t, err)
		}
		_, err = d.Acquire(t.Context(), driver.Request{Name: "b", ID: "1", TTL: time.Second})
		must(t, err)
		time.Sleep(2500 * time.Millisecond)
		must(t, d.Sweep(t.Context()))
		if tickets, rows := count(t, db, prefix+"_tickets"), count(t, db, prefix+"_tx"); tickets != 0 || rows != 0 {
			t.Errorf("%d tickets and %d rows are left", tickets, rows)
		}
	})
}

// A program of the version before has inserted the row of a name in its own transaction, since its pool was exhausted. A try is
// refused at once. While another transaction in a pool of one waits for the name, requests for other names do not wait.
func TestAcquireTxBesideAnOlderProgram(t *testing.T) {
	srv := testbed.SharedMariaDB(t)
	admin, db := connect(t, srv, ""), connect(t, srv, "")
	db.SetMaxOpenConns(1)
	l, d, prefix := fresh(t, db)
	must(t, take(t, l, "x").Release(t.Context()))
	older, err := admin.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = older.Rollback() }()
	_, err = older.ExecContext(t.Context(), "INSERT INTO "+prefix+"_tx (name) VALUES ('a')")
	must(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	if err = d.TryAcquireTx(ctx, tx, "a"); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("got %v, want ErrNotAcquired", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.AcquireTx(context.WithoutCancel(t.Context()), tx, "a") }()
	time.Sleep(2 * time.Second)
	k, err := l.TryAcquire(ctx, "other")
	if err != nil {
		t.Errorf("another name: %v", err)
	} else {
		must(t, k.Release(t.Context()))
	}
	must(t, older.Rollback())
	must(t, <-ended)
}
