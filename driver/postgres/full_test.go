package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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

// While the database's queue of notifications is full, as after a session has listened in a transaction for very long, a statement
// that notifies fails. Locks are handed over nevertheless: a waiter finds its grant by the next heartbeat.
func TestNotificationsFull(t *testing.T) {
	t.Parallel()
	srv, prefix := testbed.SharedPostgres(t), unique()
	waiter, p := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	for _, sql := range []string{ // the server's own needs gigabytes to be full
		"CREATE SCHEMA PREFIX_full",
		`CREATE FUNCTION PREFIX_full.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$`,
		"CREATE FUNCTION PREFIX_full.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT 1::float8'",
	} {
		_, err := p.Exec(t.Context(), strings.ReplaceAll(sql, "PREFIX", prefix))
		ok(t, err)
	}
	full := newPool(t, srv.URL(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = prefix + "_full, pg_catalog"
	})
	holder, err := postgres.New(full, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, holder.Close()) })
	one, two := newLocker(t, holder), newLocker(t, waiter)
	k, err := one.Acquire(t.Context(), "a")
	ok(t, err)
	next := async(t, two, "a")
	queued(t, one, "a", 2)
	ok(t, k.Release(t.Context()))
	ok(t, got(t, next).Release(t.Context()))
}
