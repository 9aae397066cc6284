package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// The drivers sweep more often than by default, since two cases would wait for most of a minute: TestExpiredTicketsAreRemovedInTime
// proves the default.
func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	h.Parallel = true
	conformance.Run(t, h)
}

func harness(t *testing.T) conformance.Harness {
	t.Helper()
	srv := testbed.Postgres(t, testbed.Faults(), testbed.Args("-c", "max_connections=500"))
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return openSweeping(ctx, srv.URL()) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := openSweeping(ctx, p.URL())
			return d, p, err
		},
		Keys:   func(ctx context.Context) (int, error) { return rows(ctx, srv.URL()) },
		Server: srv, Complete: true,
	}
}

func open(ctx context.Context, url string) (driver.Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

func openSweeping(ctx context.Context, url string) (driver.Driver, error) {
	d, err := open(ctx, url)
	if err == nil {
		d.(*postgres.Driver).SweepEvery(5 * time.Second)
	}
	return d, err
}

// rows counts what the tables hold.
func rows(ctx context.Context, url string) (n int, err error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	err = c.QueryRow(ctx, `SELECT (SELECT count(*) FROM locker_tickets)`).Scan(&n)
	return n, err
}
