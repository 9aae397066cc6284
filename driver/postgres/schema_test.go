package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestTwoExclusiveHoldersAreImpossible(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	_, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	for what, slot := range map[string]string{"its slot": "0", "a slot of its own": "token + 1"} {
		_, err = p.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s_tickets
			SELECT name, %s, token + 1, 'forged', process, queued, held, provisional, shared, permits, ttl, since, expires_at, owner, note
			FROM %[1]s_tickets`, prefix, slot))
		if err == nil {
			t.Errorf("the schema took a second exclusive holder in %s", what)
		}
	}
}

func TestSchemaOnFirstUse(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	opts := []postgres.Option{postgres.WithSchema(`odd "schema`), postgres.WithPrefix(unique() + `'" ü`)}
	var group sync.WaitGroup
	for range 8 {
		d, _ := newDriver(t, srv.URL(), opts...)
		l := newLocker(t, d)
		group.Go(func() {
			k, err := l.Acquire(t.Context(), unique())
			if err != nil {
				t.Error(err)
				return
			}
			if err := k.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// A driver did not find the schema, which another driver has created meanwhile and uses. It creates no index
// again: that would wait for all transactions that write to the table, and others would wait for it.
func TestSchemaMissedLate(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	_, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Second})
	ok(t, err)
	tx, err := p.Begin(t.Context())
	ok(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "UPDATE "+prefix+"_tickets SET note = 'busy'")
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	ok(t, d.Create(ctx, nil))
	// A missing part is created.
	_, err = p.Exec(t.Context(), "DROP FUNCTION "+prefix+"_guard"+postgres.Version)
	ok(t, err)
	ok(t, tx.Rollback(t.Context()))
	ok(t, d.Create(ctx, nil))
	var made bool
	ok(t, p.QueryRow(t.Context(), "SELECT to_regproc('"+prefix+"_guard"+postgres.Version+"') IS NOT NULL").Scan(&made))
	if !made {
		t.Error("a function that was missing was not made")
	}
}

// A driver waits for another that creates the schema, on a connection that has looked for it before. It sees then that it is
// there, and does not create it again: many programs that start at once would wait for each other.
func TestSchemaIsCreatedOnce(t *testing.T) {
	t.Parallel()
	prefix := unique()
	admin := newPool(t, testbed.SharedPostgres(t).URL(), nil)
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	_, err = d.Inspect(t.Context(), "a")
	ok(t, err)
	tx, err := admin.Begin(t.Context())
	ok(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Conn().PgConn().Exec(t.Context(), d.SchemaText()).ReadAll()
	ok(t, err)
	created := func(q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	},
	) (last string) {
		ok(t, q.QueryRow(t.Context(), "SELECT string_agg(xmin::text, ' ' ORDER BY proname) FROM pg_proc WHERE starts_with(proname, $1)", prefix).Scan(&last))
		return last
	}
	before := created(tx)
	acquired := make(chan error, 1)
	go func() {
		_, err := d.Acquire(context.WithoutCancel(t.Context()), driver.Request{Name: "a", ID: "1", TTL: time.Second})
		acquired <- err
	}()
	for waiting := false; !waiting; time.Sleep(10 * time.Millisecond) {
		ok(t, admin.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND $1 = ANY (pg_blocking_pids(pid))",
			tx.Conn().PgConn().PID()).Scan(&waiting))
	}
	ok(t, tx.Commit(t.Context()))
	ok(t, <-acquired)
	if after := created(admin); after != before {
		t.Error("the functions were created again")
	}
}

// A statement did not find the tables, and another of the same driver has found them since: the first is sent again. If
// they are gone, the error says that they have been there.
func TestSchemaMissedBesideUse(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	missed := errors.New("missed")
	ok(t, d.Create(t.Context(), missed))
	ok(t, d.CreateInUse(t.Context(), missed))
	_, err := p.Exec(t.Context(), "DROP TABLE "+prefix+"_tickets CASCADE")
	ok(t, err)
	if err := d.CreateInUse(t.Context(), missed); !errors.Is(err, missed) || !strings.Contains(err.Error(), "vanished") {
		t.Errorf("without the tables: %v", err)
	}
}

// A request that fails while it has the lock for moving the sequence of tokens does not leave it held.
func TestNoLockIsLeftBehind(t *testing.T) {
	t.Parallel()
	prefix, app := unique(), unique()
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = app })
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l := newLocker(t, d)
	cycle := func() error {
		k, err := l.Acquire(t.Context(), "a")
		if err != nil {
			return err
		}
		return k.Release(t.Context())
	}
	ok(t, cycle())
	_, err = p.Exec(t.Context(), "ALTER SEQUENCE "+prefix+"_token RESTART 1 MAXVALUE 1000000") // no number near the clock
	ok(t, err)
	if err = cycle(); postgres.Code(err) != "22003" {
		t.Fatalf("the error is %v, want one of a sequence that cannot be moved", err)
	}
	var left int
	ok(t, p.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND application_name = $1`, app).Scan(&left))
	if left > 0 {
		t.Errorf("%d locks are left", left)
	}
	_, err = p.Exec(t.Context(), "ALTER SEQUENCE "+prefix+"_token NO MAXVALUE")
	ok(t, err)
	ok(t, cycle())
}

func TestSchemaByAnotherUser(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	admin := newPool(t, srv.URL(), nil)
	user, prefix := unique(), unique()
	exec := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	exec("CREATE USER " + user + " PASSWORD '" + user + "'")
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP OWNED BY "+user+"; DROP USER "+user, pgx.QueryExecModeSimpleProtocol)
	})
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = user, user })
	for _, opt := range []postgres.Option{nil, postgres.WithoutCreate()} {
		d, err := postgres.New(p, postgres.WithPrefix(prefix), opt)
		ok(t, err)
		_, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Second})
		if err == nil || !strings.Contains(err.Error(), "postgres.Schema") {
			t.Errorf("without tables: %v", err)
		}
		ok(t, d.Close())
	}
	sql, err := postgres.Schema(postgres.WithPrefix(prefix))
	ok(t, err)
	exec(sql)
	exec(sql) // again
	exec(fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE ON %[1]s_tickets, %[1]s_processes TO %[2]s;
		GRANT USAGE, SELECT, UPDATE ON SEQUENCE %[1]s_token TO %[2]s`, prefix, user))
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	w := async(t, l, "a")
	queued(t, l, "a", 2)
	ok(t, k.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
}

// A plan that was made while the table was small is kept while it grows.
func TestPlansAreForManyTickets(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	ok(t, d.Release(t.Context(), r.Hold(g.Token)))
	for range 2 {
		_, err = p.Exec(t.Context(), "VACUUM ANALYZE "+prefix+"_tickets")
		ok(t, err)
		for _, statement := range []string{
			"DELETE FROM %s_tickets WHERE name = 'a' AND slot = 0 AND id = '1' AND NOT queued",
			"DELETE FROM %s_tickets WHERE id = '1' AND slot <> 0 AND name = 'a'",
			"SELECT FROM %s_tickets WHERE name = 'a'",
			"SELECT FROM %s_tickets WHERE name = 'a' AND slot > 0 ORDER BY slot LIMIT 1",
		} {
			rows, err := p.Query(t.Context(), "EXPLAIN "+fmt.Sprintf(statement, prefix))
			ok(t, err)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			ok(t, err)
			if text := strings.Join(plan, "\n"); !strings.Contains(text, "Index") || strings.Contains(text, "Seq Scan") {
				t.Errorf("%s\n%s", statement, text)
			}
		}
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	for i := range 50 {
		_, err := d.Acquire(t.Context(), driver.Request{Name: fmt.Sprint(i), ID: fmt.Sprint("id-", i), TTL: 20 * time.Millisecond})
		ok(t, err)
	}
	count := func() (n int) {
		ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_tickets").Scan(&n))
		return n
	}
	if n := count(); n != 50 {
		t.Fatalf("%d rows of dead holders, want 50", n)
	}
	waitFor(t, "the sweep leaves nothing", func() bool {
		sweep(t, d)
		return count() == 0
	})
}

// To look at a database without tables creates none.
func TestLookingCreatesNothing(t *testing.T) {
	t.Parallel()
	d, p, prefix := newDriverOfOne(t)
	names, err := d.List(t.Context())
	ok(t, err)
	queue, err := d.Inspect(t.Context(), "a")
	ok(t, err)
	if len(names)+len(queue) != 0 {
		t.Errorf("found %q, %v", names, queue)
	}
	var n int
	ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE starts_with(relname, $1)", prefix).Scan(&n))
	if n != 0 {
		t.Errorf("%d tables and indexes were created", n)
	}
	none, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix), postgres.WithoutCreate())
	if _, err := none.List(t.Context()); err == nil {
		t.Error("with create=false, missing tables are no error")
	}
	r := driver.Request{Name: "a", ID: "a", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	ok(t, d.Release(t.Context(), r.Hold(g.Token)))
}
