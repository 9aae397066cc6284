// Package mysqltest runs the conformance suite on driver/mysql: its own test on Oracle's MySQL, and the
// driver's tests on MariaDB. So the two run at the same time, in two processes: the suite counts the
// goroutines of its process.
package mysqltest

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/mysql" // registers its scheme
	"github.com/lockerproject/locker/internal/testbed"
)

const prefix = "conformance"

// Start starts a server, as testbed.MariaDB and testbed.MySQL do.
type Start func(testing.TB, ...testbed.Option) *testbed.Server

// Run proves the driver on a server. On one that the environment names, the cases that
// kill it are left out.
func Run(t *testing.T, start Start) {
	t.Helper()
	h := harness(t, start)
	if h.Server != nil {
		h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t, start), nil }
	}
	conformance.Run(t, h)
}

func harness(t *testing.T, start Start) conformance.Harness {
	t.Helper()
	srv := start(t, testbed.Durable(), testbed.Faults(), testbed.OrExternal())
	db, err := sql.Open("mysql", Config(t, srv.URL()).FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	h := conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return Open(ctx, srv.URL(), prefix) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := Open(ctx, p.URL(), prefix)
			return d, p, err
		},
		Keys: func(ctx context.Context) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+prefix+"_tickets").Scan(&n)
			return n, err
		},
	}
	if srv.CanFault() {
		h.Server, h.Complete = srv, true
	}
	return h
}

// Open opens a driver by URL.
func Open(ctx context.Context, address, prefix string) (driver.Driver, error) {
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

// Config says where and as whom an address is reached.
func Config(tb testing.TB, address string) *gomysql.Config {
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
