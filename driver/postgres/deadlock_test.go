package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// deadlocks counts the statements that a deadlock has ended, or a lock timeout, which is shorter for removals.
type deadlocks struct{ n *atomic.Int64 }

func (deadlocks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (d deadlocks) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	switch postgres.Code(data.Err) {
	case "40P01", "55P03":
		d.n.Add(1)
	}
}

// deadlockBed is a driver whose deadlocks are counted, and its tables.
type deadlockBed struct {
	t           *testing.T
	d           *postgres.Driver
	admin       *pgxpool.Pool
	prefix, app string
	ended       *atomic.Int64
}

func newDeadlockBed(t *testing.T) deadlockBed {
	t.Helper()
	srv := testbed.SharedPostgres(t)
	b := deadlockBed{t: t, admin: newPool(t, srv.URL(), nil), prefix: unique(), app: unique(), ended: new(atomic.Int64)}
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = b.app
		c.ConnConfig.RuntimeParams["deadlock_timeout"] = "2s" // the other session waits, too, before the server checks
		c.ConnConfig.Tracer = deadlocks{b.ended}
	})
	d, err := postgres.New(p, postgres.WithPrefix(b.prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	b.d = d
	b.release(b.acquire("warm", "warm", false))
	return b
}

func (b deadlockBed) sql(s string) string { return strings.ReplaceAll(s, "PREFIX", b.prefix) }

func (b deadlockBed) exec(s string) {
	b.t.Helper()
	_, err := b.admin.Exec(b.t.Context(), b.sql(s))
	ok(b.t, err)
}

func (b deadlockBed) acquire(name, id string, shared bool) driver.Hold {
	b.t.Helper()
	r := driver.Request{Name: name, ID: id, TTL: time.Minute, Shared: shared}
	g, err := b.d.Acquire(b.t.Context(), r)
	ok(b.t, err)
	return r.Hold(g.Token)
}

func (b deadlockBed) release(h driver.Hold) {
	b.t.Helper()
	ok(b.t, b.d.Release(b.t.Context(), h))
}

// wait queues a ticket, and returns when it is queued. The channel gets the error of the wait.
func (b deadlockBed) wait(name, id string) <-chan error {
	b.t.Helper()
	queued, done := make(chan struct{}), make(chan error, 1)
	r := driver.Request{Name: name, ID: id, TTL: time.Minute, Wait: true, Joined: func() { close(queued) }}
	go func() { _, err := b.d.Acquire(b.t.Context(), r); done <- err }()
	select {
	case <-queued:
	case err := <-done: // did not wait
		done <- err
	}
	return done
}

// Another session takes the locks that a statement of ours takes, in the opposite order: the database ends
// our statement, and the driver sends it again.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	b := newDeadlockBed(t)
	lockOfName := "SELECT pg_advisory_xact_lock(PREFIX_key" + postgres.Version + "('NAME'))"
	const rowOfHolder = "SELECT FROM PREFIX_tickets WHERE name = 'NAME' AND slot = 0 FOR UPDATE"
	for _, c := range []struct {
		name        string
		first, then string // of the other session
		prepare     func(name string) (ours func() error)
	}{
		{"join", rowOfHolder, lockOfName, func(name string) func() error {
			b.acquire(name, name+"1", false)
			return func() error {
				done := b.wait(name, name+"2")
				ok(t, b.d.Release(t.Context(), driver.Hold{Name: name, ID: name + "1"}))
				return <-done
			}
		}},
		{"renew", "SELECT FROM PREFIX_tickets WHERE name = 'NAME-b' FOR UPDATE", "SELECT FROM PREFIX_tickets WHERE name = 'NAME-a' FOR UPDATE", func(name string) func() error {
			rs := []driver.Renewal{
				{Hold: b.acquire(name+"-a", name+"1", false), TTL: time.Minute},
				{Hold: b.acquire(name+"-b", name+"2", false), TTL: time.Minute},
			}
			return func() error {
				for _, err := range b.d.RenewAll(t.Context(), rs) {
					if err != nil {
						return err
					}
				}
				return nil
			}
		}},
		{"hand over", "SELECT FROM PREFIX_tickets WHERE name = 'NAME' AND slot > 0 FOR UPDATE", rowOfHolder, func(name string) func() error {
			h := b.acquire(name, name+"1", false)
			next := b.wait(name, name+"2")
			return func() error {
				if err := b.d.Release(t.Context(), h); err != nil {
					return err
				}
				return <-next
			}
		}},
		{"break", rowOfHolder, lockOfName, func(name string) func() error {
			h := b.acquire(name, name+"1", false)
			return func() error { return b.d.Break(t.Context(), name, h.Token) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := unique()
			ours := c.prepare(name)
			before := b.ended.Load()
			tx := begin(t, b.admin)
			other := func(s string) error {
				_, err := tx.Exec(t.Context(), strings.ReplaceAll(b.sql(s), "NAME", name))
				return err
			}
			ok(t, other("SET LOCAL deadlock_timeout = '1min'")) // so that ours is ended
			ok(t, other(c.first))
			done := make(chan error, 1)
			go func() { done <- ours() }()
			waitFor(t, "our statement waits for the other session", func() (waits bool) {
				ok(t, b.admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE wait_event_type = 'Lock' AND application_name = $1)`, b.app).Scan(&waits))
				return waits
			})
			ok(t, other(c.then)) // which does not return before ours is ended
			ok(t, tx.Rollback(t.Context()))
			ok(t, <-done)
			if b.ended.Load() == before {
				t.Error("there was no deadlock")
			}
		})
	}
}

// The same for every write of every request, with a database that reports one deadlock.
func TestDeadlockAnywhere(t *testing.T) {
	t.Parallel()
	b := newDeadlockBed(t)
	b.exec(`CREATE SEQUENCE PREFIX_times`)
	b.exec(`CREATE FUNCTION PREFIX_victim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('PREFIX_times') = 1 THEN
			RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01';
		END IF;
		RETURN coalesce(NEW, OLD);
	END $$`)
	once := func(what string, f func()) {
		t.Helper()
		before := b.ended.Load()
		b.exec(`ALTER SEQUENCE PREFIX_times RESTART`)
		f()
		if n := b.ended.Load() - before; n != 1 {
			t.Errorf("%s: %d deadlocks, want 1", what, n)
		}
	}
	trigger := func(table string) {
		b.exec(`CREATE TRIGGER victim BEFORE INSERT OR UPDATE OR DELETE ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION PREFIX_victim()`)
	}
	ctx := t.Context()
	trigger("PREFIX_tickets")
	var (
		h, s driver.Hold
		next <-chan error
	)
	once("acquire", func() { h = b.acquire("a", "1", false) })
	once("acquire, shared", func() { s = b.acquire("s", "2", true) })
	once("renew", func() { ok(t, b.d.Renew(ctx, h, time.Hour)) })
	once("wait", func() { next = b.wait("a", "3") })
	once("release, and hand over", func() { b.release(h); ok(t, <-next) })
	once("release of who waited", func() { b.release(driver.Hold{Name: "a", ID: "3"}) })
	once("release, shared", func() { b.release(s) })
	h = b.acquire("a", "4", false)
	once("release of who did not wait", func() { b.release(h) })
	h = b.acquire("a", "5", false)
	once("break", func() { ok(t, b.d.Break(ctx, "a", h.Token)) })

	b.exec(`DROP TRIGGER victim ON PREFIX_tickets`)
	trigger("PREFIX_processes")
	h = b.acquire("a", "6", false)
	d := b.d
	b.d, _ = newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(b.prefix)) // whose process is not registered
	b.exec(`ALTER SEQUENCE PREFIX_times RESTART`)
	next = b.wait("a", "7")
	b.d = d
	b.release(h)
	ok(t, <-next)
}
