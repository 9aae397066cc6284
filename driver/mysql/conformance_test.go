package mysql_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// open opens a driver by URL.
func open(ctx context.Context, address, prefix string) (driver.Driver, error) {
	u, err := driver.ParseURL(address + "?prefix=" + url.QueryEscape(prefix))
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// connect opens a pool as a user would.
func connect(tb testing.TB, srv *testbed.Server, parameters string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", "root@tcp("+srv.Addr()+")/locker"+parameters)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func conform(t *testing.T, srv *testbed.Server) {
	const prefix = "conformance"
	db := connect(t, srv, "")
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL(), prefix) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL(), prefix)
			return d, p, err
		},
		Server: srv,
		Keys: func(ctx context.Context) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+prefix+"_tickets").Scan(&n)
			return n, err
		},
	})
}

func TestConformance(t *testing.T) {
	conform(t, testbed.MariaDB(t, testbed.Durable(), testbed.Faults()))
}

// It is not run where there is no MySQL: scripts/install-servers.sh mysql.
func TestConformanceMySQL(t *testing.T) {
	conform(t, testbed.MySQL(t, testbed.Durable(), testbed.Faults()))
}
