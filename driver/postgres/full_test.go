package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A database whose disk is full refuses to write. Acquire soon returns that error, also for a name that is
// held. The holder keeps its lock, and everything works again when there is space.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, pool := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	held, err := l.Acquire(t.Context(), "held", locker.WithTTL(5*time.Second))
	ok(t, err)
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "PREFIX", prefix))
		ok(t, err)
	}
	exec(`CREATE FUNCTION PREFIX_full() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`)
	exec(`CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON PREFIX_tickets EXECUTE FUNCTION PREFIX_full()`)
	for _, name := range []string{"free", "held"} {
		begun := time.Now()
		_, err := l.Acquire(t.Context(), name)
		var full *pgconn.PgError
		if !errors.As(err, &full) || full.Code != "53100" || !strings.Contains(err.Error(), "No space left") {
			t.Errorf("acquire of what is %s: %v", name, err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("refused after %v only", took)
		}
	}
	ok(t, held.Err())
	exec(`DROP TRIGGER full_disk ON PREFIX_tickets`)
	time.Sleep(5 * time.Second) // of a whole TTL, with renewals
	ok(t, held.Err())
	ok(t, held.Release(t.Context()))
	for _, name := range []string{"free", "held"} {
		k, err := l.Acquire(t.Context(), name)
		ok(t, err)
		ok(t, k.Release(t.Context()))
	}
}
