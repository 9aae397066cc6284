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

// withoutRoom opens drivers that share a prefix on a server whose queue of notifications is full: who notifies is refused, by the statement
// or by its commit, as the server does it. The server's own queue needs gigabytes to be full.
func withoutRoom(t *testing.T, atCommit bool, n int) (ds []*postgres.Driver, p *pgxpool.Pool) {
	t.Helper()
	srv, prefix := testbed.SharedPostgres(t), unique()
	path := prefix + "_full, pg_catalog"
	p = newPool(t, srv.URL(), nil)
	raise := "RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'"
	notify := raise
	if atCommit {
		notify = "INSERT INTO PREFIX_full.sent VALUES (1)"
	}
	for _, sql := range []string{
		"CREATE SCHEMA PREFIX_full",
		"CREATE TABLE PREFIX_full.sent (n int)",
		"CREATE FUNCTION PREFIX_full.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + raise + "; END $$",
		"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON PREFIX_full.sent DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION PREFIX_full.refuse()",
		"CREATE FUNCTION PREFIX_full.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN " + notify + "; END $$",
	} {
		_, err := p.Exec(t.Context(), strings.ReplaceAll(sql, "PREFIX", prefix))
		ok(t, err)
	}
	for range n {
		full := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = path })
		d, err := postgres.New(full, postgres.WithPrefix(prefix))
		ok(t, err)
		t.Cleanup(func() { ok(t, d.Close()) })
		ds = append(ds, d)
	}
	return ds, p
}

// While the database's queue of notifications is full, as after a session has listened in a transaction for very long, a transaction that
// notifies fails. Locks are passed on nevertheless: a waiter finds its grant by a heartbeat.
func TestNotificationsFull(t *testing.T) {
	t.Parallel()
	for when, atCommit := range map[string]bool{"at the statement": false, "at the commit": true} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			ds, p := withoutRoom(t, atCommit, 3)
			one, two, three := newLocker(t, ds[0]), newLocker(t, ds[1]), newLocker(t, ds[2])
			wait := func(opts ...locker.Option) <-chan *locker.Lock {
				t.Helper()
				next := async(t, two, "a", opts...)
				queued(t, one, "a", 2)
				return next
			}
			acquire := func(l *locker.Client, opts ...locker.Option) *locker.Lock {
				t.Helper()
				k, err := l.Acquire(t.Context(), "a", opts...)
				ok(t, err)
				return k
			}

			k := acquire(one) // by hand_over
			next := wait()
			ok(t, k.Release(t.Context()))
			ok(t, got(t, next).Release(t.Context()))

			k = acquire(one) // by a walk of a release
			next = wait(locker.Shared())
			ok(t, k.Release(t.Context()))
			ok(t, got(t, next).Release(t.Context()))

			k = acquire(one)
			next = wait()
			ok(t, three.Break(t.Context(), "a", k.Token()))
			ok(t, got(t, next).Release(t.Context()))
			is(t, k.Release(t.Context()), locker.ErrLost)

			k = acquire(one, locker.WithMinHold(time.Second)) // its release shortens the lease
			next = wait()
			ok(t, k.Release(t.Context()))
			ok(t, got(t, next).Release(t.Context()))

			k = acquire(one, locker.WithoutRenewal(), locker.WithTTL(time.Second))
			next = wait()
			last := async(t, three, "a") // its request, or an advance, grants what two waits for
			ok(t, got(t, next).Release(t.Context()))
			ok(t, got(t, last).Release(t.Context()))
			is(t, k.Release(t.Context()), locker.ErrLost)

			k = acquire(one)
			tx := begin(t, p)
			ok(t, ds[0].Guard(t.Context(), tx, k))
			next = wait()
			ok(t, k.Release(t.Context())) // notifies that the queue is due
			ok(t, tx.Commit(t.Context()))
			ok(t, got(t, next).Release(t.Context()))
		})
	}
}
