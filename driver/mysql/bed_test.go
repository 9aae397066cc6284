package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// onBoth runs a test on MariaDB and, where there is one, on MySQL, beside other tests: tests mostly wait.
func onBoth(t *testing.T, test func(t *testing.T, srv *testbed.Server)) {
	t.Helper()
	t.Parallel()
	onBothAlone(t, test)
}

// onBothAlone runs a test on both servers at the same time, and beside no other test, because it has bounds of less than
// a second, keeps the processors busy, or looks for what waits in the whole server. Each server has only one such test.
func onBothAlone(t *testing.T, test func(t *testing.T, srv *testbed.Server)) {
	t.Helper()
	for name, server := range map[string]func(testing.TB) *testbed.Server{"MariaDB": testbed.SharedMariaDB, "MySQL": testbed.SharedMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, server(t))
		})
	}
}

// connect opens a pool as a user would.
func connect(tb testing.TB, srv *testbed.Server, parameters string) *sql.DB {
	tb.Helper()
	return connectTo(tb, srv.URL(), parameters)
}

func connectTo(tb testing.TB, address, parameters string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", configOf(tb, address).FormatDSN()+parameters)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// configOf says where and as whom an address is reached.
func configOf(tb testing.TB, address string) *gomysql.Config {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	c := gomysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	return c
}

// openURL opens a driver by URL.
func openURL(ctx context.Context, address, prefix string) (driver.Driver, error) {
	a, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	q := a.Query()
	q.Set("prefix", prefix)
	a.RawQuery = q.Encode()
	u, err := driver.ParseURL(a.String())
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// serverDir makes a folder for files that a server reads, which is another user's.
func serverDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755)) //nolint:gosec // its user passes through
	}
	return dir
}

var prefixes atomic.Int64

func newPrefix() string { return fmt.Sprintf("t%d_%d", time.Now().UnixNano(), prefixes.Add(1)) }

// fresh makes a driver with tables of its own.
func fresh(t *testing.T, db *sql.DB, opts ...mysql.Option) (*locker.Client, *mysql.Driver, string) {
	t.Helper()
	prefix := newPrefix()
	l, d := join(t, db, prefix, opts...)
	return l, d, prefix
}

func join(t *testing.T, db *sql.DB, prefix string, opts ...mysql.Option) (*locker.Client, *mysql.Driver) {
	t.Helper()
	d, err := mysql.New(db, append(opts, mysql.WithPrefix(prefix))...)
	must(t, err)
	return newClient(t, d), d
}

func newClient(t *testing.T, d *mysql.Driver, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	l := locker.New(d, opts...)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// renewals has the token of each lease that a client has renewed.
type renewals chan uint64

// freshRenewing is fresh, with the client's renewals.
func freshRenewing(t *testing.T, db *sql.DB) (*locker.Client, *mysql.Driver, string, renewals) {
	t.Helper()
	prefix, r := newPrefix(), make(renewals, 1000)
	d, err := mysql.New(db, mysql.WithPrefix(prefix))
	must(t, err)
	l := newClient(t, d, locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventRenewed {
			r <- e.Token
		}
	}))
	return l, d, prefix, r
}

// await waits until a lease was renewed twice: the first time may have been before what the test has done to it.
func (r renewals) await(t *testing.T, k *locker.Lock) {
	t.Helper()
	for late, left := time.After(20*time.Second), 2; left > 0; {
		select {
		case token := <-r:
			if token == k.Token() {
				left--
			}
		case <-late:
			t.Fatalf("not renewed twice in 20 s: %v", k.Err())
		}
	}
	must(t, k.Err())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, l *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	k, err := l.Acquire(ctx, name, opts...)
	must(t, err)
	return k
}

// cycle takes and releases a name some times.
func cycle(t *testing.T, l *locker.Client, name string) (last uint64) {
	t.Helper()
	for range 3 {
		k := take(t, l, name)
		last = k.Token()
		must(t, k.Release(t.Context()))
	}
	return last
}

func count(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}
