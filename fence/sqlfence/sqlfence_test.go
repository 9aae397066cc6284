package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/driver/mysql"
	_ "github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/internal/guardtest"
	"github.com/lockerproject/locker/fence/sqlfence"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// database is a database under test.
type database struct {
	dialect sqlfence.Dialect
	url     string // as locker.Open takes it
	driver  string // of database/sql
	dsn     string
}

func postgres(t *testing.T) database {
	t.Helper()
	address := testbed.SharedPostgres(t).URL()
	return database{dialect: sqlfence.Postgres, url: address, driver: "pgx", dsn: address}
}

func mariadb(t *testing.T) database { t.Helper(); return mysqlLike(t, testbed.SharedMariaDB(t)) }
func oracle(t *testing.T) database  { t.Helper(); return mysqlLike(t, testbed.SharedMySQL(t)) }

func mysqlLike(t *testing.T, srv *testbed.Server) database {
	t.Helper()
	u, err := url.Parse(srv.URL())
	must(t, err)
	c := gomysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	return database{dialect: sqlfence.MySQL, url: srv.URL(), driver: "mysql", dsn: c.FormatDSN()}
}

// onEach runs a test on every database.
func onEach(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres(t)) })
	t.Run("MariaDB", func(t *testing.T) { test(t, mariadb(t)) })
	t.Run("MySQL", func(t *testing.T) { test(t, oracle(t)) })
}

// open opens a pool; parameters are added to the DSN.
func (d database) open(t *testing.T, parameters string) *sql.DB {
	t.Helper()
	dsn := d.dsn
	if parameters != "" {
		mark := "?"
		if strings.Contains(dsn, "?") {
			mark = "&"
		}
		dsn += mark + parameters
	}
	db, err := sql.Open(d.driver, dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func unique() string { return fmt.Sprintf("t%016x", rand.Uint64()) }

// table makes a table of fences.
func (d database) table(t *testing.T, db *sql.DB) *sqlfence.Table {
	t.Helper()
	name := unique()
	f, err := sqlfence.New(d.dialect, name)
	must(t, err)
	for range 2 { // it may be run again
		_, err = db.ExecContext(t.Context(), f.Schema())
		must(t, err)
	}
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), "DROP TABLE "+name)
		must(t, err)
	})
	return f
}

// number is a resource: one row of a table.
type number struct {
	db        *sql.DB
	guard     sqlfence.Guard
	isolation sql.IsolationLevel
	table     string
}

func (d database) number(t *testing.T, db *sql.DB, g sqlfence.Guard) *number {
	t.Helper()
	n := &number{db: db, guard: g, table: unique()}
	for _, q := range []string{"CREATE TABLE " + n.table + " (v bigint NOT NULL)", "INSERT INTO " + n.table + " VALUES (0)"} {
		_, err := db.ExecContext(t.Context(), q)
		must(t, err)
	}
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP TABLE "+n.table) })
	return n
}

func (n *number) do(ctx context.Context, lock fence.Lock, fn func(tx *sql.Tx) error) error {
	if n.isolation == sql.LevelDefault {
		return sqlfence.Do(ctx, n.db, n.guard, lock, fn)
	}
	tx, err := n.db.BeginTx(ctx, &sql.TxOptions{Isolation: n.isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := n.guard.Guard(ctx, tx, lock); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (n *number) Read(ctx context.Context, lock fence.Lock) (v int, err error) {
	err = n.do(ctx, lock, func(tx *sql.Tx) error { return n.get(ctx, tx, &v) })
	return v, err
}

func (n *number) Write(ctx context.Context, lock fence.Lock, v int) error {
	return n.do(ctx, lock, func(tx *sql.Tx) error { return n.set(ctx, tx, v) })
}

func (n *number) Update(ctx context.Context, lock fence.Lock, modify func(int) int) error {
	return n.do(ctx, lock, func(tx *sql.Tx) error {
		var v int
		if err := n.get(ctx, tx, &v); err != nil {
			return err
		}
		return n.set(ctx, tx, modify(v))
	})
}

func (n *number) Peek(ctx context.Context) (v int, err error) {
	err = n.db.QueryRowContext(ctx, "SELECT v FROM "+n.table).Scan(&v)
	return v, err
}

func (n *number) get(ctx context.Context, tx *sql.Tx, v *int) error {
	return tx.QueryRowContext(ctx, "SELECT v FROM "+n.table).Scan(v)
}

func (n *number) set(ctx context.Context, tx *sql.Tx, v int) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET v = %d", n.table, v))
	return err
}

// The locks are of the same server, opened by URL.
func TestTable(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		l, err := locker.Open(t.Context(), d.url)
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		db := d.open(t, "")
		guardtest.Run(t, l, func(t *testing.T) guardtest.Resource { return d.number(t, db, d.table(t, db)) })
	})
}

// The answers of the servers differ by these parameters of the clients.
func TestTableWithOtherParameters(t *testing.T) {
	l := locker.New(memory.New())
	t.Cleanup(func() { _ = l.Close() })
	for _, c := range []struct {
		name, parameters string
		open             func(*testing.T) database
	}{
		{"PostgreSQL, simple protocol", "default_query_exec_mode=simple_protocol", postgres},
		{"PostgreSQL, exec", "default_query_exec_mode=exec", postgres},
		{"MariaDB, clientFoundRows", "clientFoundRows=true", mariadb},
		{"MariaDB, interpolateParams", "interpolateParams=true", mariadb},
		{"MySQL, clientFoundRows", "clientFoundRows=true&interpolateParams=true", oracle},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.open(t)
			db := d.open(t, c.parameters)
			guardtest.Run(t, l, func(t *testing.T) guardtest.Resource { return d.number(t, db, d.table(t, db)) })
		})
	}
}

// A late holder whose transaction comes in between cannot make the next holder lose an
// update, at any isolation level. At the stricter levels of PostgreSQL a transaction
// may fail if another has committed meanwhile; it never has a wrong result.
func TestIsolation(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, "")
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(level.String(), func(t *testing.T) {
				n := d.number(t, db, d.table(t, db))
				n.isolation = level
				interleave(t, n)
			})
		}
	})
}

// interleave starts the next holder's transaction while a late one is open: it has to
// wait, and to see what the late one wrote.
func interleave(t *testing.T, n *number) {
	t.Helper()
	ctx := t.Context()
	late, next := fence.Token("stock", 1), fence.Token("stock", 2)
	must(t, n.Write(ctx, late, 10))
	done := make(chan error, 1)
	must(t, n.do(ctx, late, func(tx *sql.Tx) error {
		go func() { done <- n.Update(ctx, next, func(v int) int { return v - 1 }) }()
		select {
		case err := <-done:
			t.Fatalf("the next transaction did not wait: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		var v int
		must(t, n.get(ctx, tx, &v))
		return n.set(ctx, tx, v-1)
	}))
	want := 8
	if err := <-done; err != nil {
		t.Logf("refused: %v", err)
		if n.isolation == sql.LevelReadCommitted {
			t.Error(err)
		}
		want = 9
	}
	if v, err := n.Peek(ctx); err != nil || v != want {
		t.Errorf("the value is %d, %v; want %d", v, err, want)
	}
}

func TestDo(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		ctx, db := t.Context(), d.open(t, "")
		n := d.number(t, db, d.table(t, db))
		lock := fence.Token("a", 7)
		boom := errors.New("boom")
		err := sqlfence.Do(ctx, db, n.guard, lock, func(tx *sql.Tx) error {
			must(t, n.set(ctx, tx, 1))
			return boom
		})
		if err != boom { //nolint:errorlint // the very error
			t.Errorf("the error of fn became %v", err)
		}
		if v, err := n.Peek(ctx); v != 0 || err != nil {
			t.Errorf("a failed function has written %d (%v)", v, err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := n.Write(ended, lock, 2); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
		for what, err := range map[string]error{
			"no database": sqlfence.Do(ctx, nil, n.guard, lock, func(*sql.Tx) error { return nil }),
			"no guard":    sqlfence.Do(ctx, db, nil, lock, func(*sql.Tx) error { return nil }),
			"no function": sqlfence.Do(ctx, db, n.guard, lock, nil),
			"no tx":       n.guard.Guard(ctx, nil, lock),
		} {
			if !errors.Is(err, locker.ErrInvalidOption) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestNew(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.Postgres, sqlfence.MySQL} {
		for _, bad := range []string{"", ".", "a.", ".a", "a.b.c", "a\x00", "\xff", strings.Repeat("x", 64)} {
			if _, err := sqlfence.New(d, bad); !errors.Is(err, locker.ErrInvalidOption) {
				t.Errorf("New(%d, %q): %v", d, bad, err)
			}
		}
		f, err := sqlfence.New(d, "app.x`\"y")
		must(t, err)
		want := map[sqlfence.Dialect]string{sqlfence.Postgres: "\"app\".\"x`\"\"y\"", sqlfence.MySQL: "`app`.`x``\"y`"}[d]
		if !strings.Contains(f.Schema(), "CREATE TABLE IF NOT EXISTS "+want+" (") {
			t.Errorf("the schema is %s", f.Schema())
		}
	}
	if _, err := sqlfence.New(0, "a"); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("no dialect: %v", err)
	}
}

// The guard of the driver, on a lock that was opened by URL: a holder is refused
// as soon as it does not hold the lock, though nobody came after it.
func TestDriversGuard(t *testing.T) {
	for name, open := range map[string]func(*testing.T) database{"MariaDB": mariadb, "MySQL": oracle} {
		t.Run(name, func(t *testing.T) {
			ctx, d, prefix := t.Context(), open(t), unique()
			l, err := locker.Open(ctx, d.url+"?prefix="+prefix)
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			db := d.open(t, "")
			g, err := mysql.New(db, mysql.WithPrefix(prefix))
			must(t, err)
			t.Cleanup(func() { must(t, g.Close()) })

			n := d.number(t, db, g)
			group, err := locker.AcquireAll(ctx, l, []string{"a", "b"})
			must(t, err)
			must(t, n.Write(ctx, group, 5))
			must(t, l.Break(ctx, "a", group.Locks()[0].Token()))
			err = n.Write(ctx, group, 6)
			if !errors.Is(err, fence.ErrStale) || !errors.Is(err, locker.ErrLost) {
				t.Errorf("the error is %v", err)
			}
			if v, err := n.Peek(ctx); v != 5 || err != nil {
				t.Errorf("the value is %d, %v", v, err)
			}
			_ = group.Release(ctx)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Many programs that start at once create the table, whatever its name.
func TestSchemaAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, "")
		const programs = 8
		db.SetMaxIdleConns(programs)
		for i := range 10 {
			name := unique()
			if i == 0 {
				name += "$locker$"
			}
			f, err := sqlfence.New(d.dialect, name)
			must(t, err)
			begin, errs := make(chan struct{}), make(chan error, programs)
			for range programs {
				go func() {
					<-begin
					_, err := db.ExecContext(context.WithoutCancel(t.Context()), f.Schema())
					errs <- err
				}()
			}
			close(begin)
			for range programs {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		}
	})
}
