package mysql_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// open opens a driver by URL.
func open(ctx context.Context, address, prefix string) (driver.Driver, error) {
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

func conform(t *testing.T, srv *testbed.Server) {
	const prefix = "conformance"
	db := connect(t, srv, "")
	h := conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL(), prefix) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL(), prefix)
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
	conformance.Run(t, h)
}

func TestConformance(t *testing.T) {
	conform(t, testbed.MariaDB(t, testbed.Durable(), testbed.Faults(), testbed.OrExternal()))
}

// It is not run where there is no MySQL: scripts/install-servers.sh mysql.
func TestConformanceMySQL(t *testing.T) {
	conform(t, testbed.MySQL(t, testbed.Durable(), testbed.Faults(), testbed.OrExternal()))
}
