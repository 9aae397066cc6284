package mysql_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestConformance(t *testing.T) { conform(t, testbed.MariaDB) }

// It is not run where there is no MySQL: scripts/install-servers.sh mysql.
func TestConformanceMySQL(t *testing.T) { conform(t, testbed.MySQL) }

// conform proves the driver on a server.
func conform(t *testing.T, start func(testing.TB, ...testbed.Option) *testbed.Server) {
	t.Helper()
	h := harness(t, start)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t, start), nil }
	h.Parallel = true
	conformance.Run(t, h)
}

func harness(t *testing.T, start func(testing.TB, ...testbed.Option) *testbed.Server) conformance.Harness {
	t.Helper()
	srv := start(t, testbed.Durable(), testbed.Faults())
	db := connect(t, srv, "")
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return openURL(ctx, srv.URL(), "conformance") },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := openURL(ctx, p.URL(), "conformance")
			return d, p, err
		},
		Keys: func(ctx context.Context) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM conformance_tickets").Scan(&n)
			return n, err
		},
		Server: srv, Complete: true,
	}
}
