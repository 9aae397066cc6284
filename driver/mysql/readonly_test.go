package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// A server that was started with innodb_read_only, as a reader of a cluster is, locks nothing, and what it has may be old: no lock
// is had there, no transaction is tied to one, and a process concludes nothing from its tickets.
func TestServerStartedReadOnly(t *testing.T) {
	t.Parallel()
	srv := testbed.MariaDB(t, testbed.Faults())
	db := connect(t, srv, "")
	l, d, prefix := fresh(t, db)
	must(t, take(t, l, "a").Release(t.Context()))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, d.AcquireTx(t.Context(), tx, "a"))
	must(t, tx.Commit())
	do(t, db, "SHUTDOWN")
	for late := time.Now().Add(20 * time.Second); !strings.Contains(srv.Log(), "Shutdown complete"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the server has not ended in 20 s")
		}
	}
	srv.Restart("--innodb-read-only=1")
	db = connect(t, srv, "")
	_, d = join(t, db, prefix)
	_, err = d.Store().Mine(t.Context(), 1<<16, true)
	refused := map[string]error{"the tickets of a process": err}
	for what, f := range map[string]func(context.Context, *sql.Tx, string) error{"try": d.TryAcquireTx, "acquire": d.AcquireTx} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		refused[what] = f(t.Context(), tx, "a")
		must(t, tx.Rollback())
	}
	for what, err := range refused {
		if class := d.Store().Class(err); class != sqlqueue.Undone|sqlqueue.Down {
			t.Errorf("%s: %v (class %d), want that the server is read-only", what, err, class)
		}
	}
	for _, what := range []string{"try", "acquire"} {
		if !errors.Is(refused[what], driver.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, refused[what])
		}
	}
}

// A transaction on a primary that was demoted meanwhile is tied to no lock of the next one: what it reads may be old.
func TestGuardOnADemotedPrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	db := p.pool(t)
	l, d, prefix := fresh(t, p.pool(t))
	k := take(t, l, "a", locker.WithTTL(time.Hour))
	must(t, d.Guard(t.Context(), begin(t, db), k)) // it is marked on both
	p.caughtUp(t)
	tx := begin(t, db)
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	do(t, p.onReplica, "STOP SLAVE")
	p.serve(p.replica)
	_, d = join(t, p.pool(t), prefix)
	if err := d.Guard(t.Context(), tx, k); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("guarded on the demoted primary: %v", err)
	}
	must(t, d.Guard(t.Context(), begin(t, p.pool(t)), k))
}

// begin begins a transaction that is rolled back with the test.
func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}
