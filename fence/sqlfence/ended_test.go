package sqlfence_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/fence/sqlfence"
)

// MySQL and MariaDB end a transaction at a deadlock and at a statement that changes tables, and commit what follows statement by
// statement. A function that goes on has worked without the guard, and Do says so.
func TestTransactionEndsInside(t *testing.T) {
	for name, open := range map[string]func(*testing.T) database{"MariaDB": mariadb, "MySQL": oracle} {
		t.Run(name, func(t *testing.T) {
			ctx, d, prefix := t.Context(), open(t), unique()
			l, err := locker.Open(ctx, d.url+"?prefix="+prefix)
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			lock, err := l.Acquire(ctx, "a")
			must(t, err)
			db := d.open(t, "")
			g, err := mysql.New(db, mysql.WithPrefix(prefix))
			must(t, err)
			t.Cleanup(func() { must(t, g.Close()) })
			one, two := d.number(t, db, nil), d.number(t, db, nil)
			for name, g := range map[string]sqlfence.Guard{"table": d.table(t, db), "driver": g} {
				for what, end := range map[string]func(tx *sql.Tx){
					"change of a table": func(tx *sql.Tx) {
						_, err := tx.ExecContext(ctx, "ALTER TABLE "+two.table+" COMMENT 'x'")
						must(t, err)
					},
					"deadlock": func(tx *sql.Tx) { deadlock(t, db, tx, one, two) },
				} {
					err := sqlfence.Do(ctx, db, g, lock, func(tx *sql.Tx) error {
						end(tx)
						return one.set(ctx, tx, 7)
					})
					if err == nil || !strings.Contains(err.Error(), "not guarded") {
						t.Errorf("%s, %s: %v, want that the rest was not guarded", name, what, err)
					}
				}
				must(t, sqlfence.Do(ctx, db, g, lock, func(tx *sql.Tx) error { return one.set(ctx, tx, 8) }))
			}
		})
	}
}

// deadlock has the server end tx, rather than another transaction, which has changed more.
func deadlock(t *testing.T, db *sql.DB, tx *sql.Tx, one, two *number) {
	t.Helper()
	other, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = other.Rollback() }()
	_, err = other.ExecContext(t.Context(), "INSERT INTO "+two.table+" VALUES (1)"+strings.Repeat(", (1)", 1000))
	must(t, err)
	must(t, two.set(t.Context(), other, 1))
	must(t, one.set(t.Context(), tx, 5))
	waits := make(chan error, 1)
	go func() { waits <- one.set(t.Context(), other, 1) }()
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var name string
		var n int
		must(t, db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").Scan(&name, &n))
		if n > 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatal("nothing waits")
		}
	}
	if err := two.set(t.Context(), tx, 2); err == nil || !strings.Contains(err.Error(), "1213") {
		t.Fatalf("no deadlock: %v", err)
	}
	must(t, <-waits)
}
