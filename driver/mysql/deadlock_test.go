package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// heavy begins a transaction that has changed so much that a deadlock ends the other one.
func heavy(t *testing.T, db *sql.DB, prefix string) *sql.Tx {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS "+prefix+"_heavy (n INT AUTO_INCREMENT PRIMARY KEY, x INT)")
	must(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	for range 30 {
		_, err = tx.ExecContext(t.Context(), "INSERT INTO "+prefix+"_heavy (x) VALUES (1),(2),(3),(4),(5),(6),(7),(8)")
		must(t, err)
	}
	return tx
}

// lockRow locks a row in a transaction.
func lockRow(t *testing.T, tx *sql.Tx, query string) {
	t.Helper()
	var n int
	must(t, tx.QueryRowContext(t.Context(), query).Scan(&n))
}

// blocked waits until a statement waits for a row.
func blocked(t *testing.T, db *sql.DB) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(150 * time.Millisecond) { // MariaDB shows it every 100 ms
		var n int
		must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").Scan(&n))
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no statement waits")
		}
	}
}

// A statement of ours that is ended by a deadlock is sent again, and its caller gets no error.
func TestDeadlocks(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		anchor := "SELECT seq FROM " + prefix + "_tickets WHERE entry = 'a' FOR UPDATE"
		k := take(t, l, "a")
		var group sync.WaitGroup
		defer group.Wait()

		// To enqueue, a waiter locks the slot, and then the anchor.
		tx := heavy(t, db, prefix)
		lockRow(t, tx, anchor)
		granted := make(chan *locker.Lock, 1)
		group.Go(func() {
			k, err := l.Acquire(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			granted <- k
		})
		blocked(t, db)
		lockRow(t, tx, fmt.Sprintf("SELECT %s FROM %s_slots WHERE %[1]s = %[3]d FOR UPDATE", mysql.SlotColumn, prefix, mysql.SlotOf("a")))
		must(t, tx.Commit())
		must(t, k.Release(t.Context()))
		if k = <-granted; k == nil {
			return
		}
		must(t, k.Release(t.Context()))

		// To release, a holder locks the row, and then its entry of the index queue.
		k = take(t, l, "once")
		tx = heavy(t, db, prefix)
		lockRow(t, tx, fmt.Sprintf("SELECT seq FROM %s_tickets FORCE INDEX (queue) WHERE name = 'once' AND seq = %d LOCK IN SHARE MODE",
			prefix, k.Token()))
		released := make(chan error, 1)
		group.Go(func() { released <- k.Release(context.WithoutCancel(t.Context())) })
		blocked(t, db)
		lockRow(t, tx, "SELECT seq FROM "+prefix+"_tickets WHERE entry = 'once' FOR UPDATE")
		must(t, tx.Commit())
		must(t, <-released)
		must(t, take(t, l, "once").Release(t.Context()))

		// To renew leases, a batch locks one row after the other.
		rs := make([]driver.Renewal, 2)
		for i, name := range []string{"a", "b"} {
			r := driver.Request{Name: name, ID: name + "-" + prefix, TTL: time.Minute}
			g, err := d.Acquire(t.Context(), r)
			must(t, err)
			rs[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: time.Hour}
		}
		tx = heavy(t, db, prefix)
		lockRow(t, tx, "SELECT seq FROM "+prefix+"_tickets WHERE entry = 'b' FOR UPDATE")
		renewed := make(chan []error, 1)
		group.Go(func() { renewed <- d.RenewAll(context.WithoutCancel(t.Context()), rs) })
		blocked(t, db)
		lockRow(t, tx, anchor)
		must(t, tx.Commit())
		for i, err := range <-renewed {
			must(t, err)
			must(t, d.Release(t.Context(), rs[i].Hold))
		}
	})
}
