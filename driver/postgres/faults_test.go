package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// Whichever statement of a process meets a fault, what the driver promises is kept.
func TestFaultAtEachStatement(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	prefix := unique()
	d, admin := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	ok(t, d.Ping(t.Context()))
	part, atOnce := 37, 14 // it has no divisor in common with the number of faults
	if testbed.All() {
		part, atOnce = 1, 30
	}
	sqltest.FaultAtEachStatement(t, sqltest.Bed{
		Open: func(dial sqltest.Dial) (driver.Driver, func(), error) {
			p := newPool(t, srv.URL(), func(c *pgxpool.Config) {
				c.MaxConns = 3
				if dial != nil {
					c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }
				}
			})
			d, err := postgres.New(p, postgres.WithPrefix(prefix))
			return d, func() { _ = d.Close(); p.Close() }, err
		},
		IsStatement: func(packet []byte) bool { return bytes.ContainsAny(packet[:1], "PBQ") }, // Parse, Bind, Query
		Left: func() (n int, err error) {
			_, err = d.Sweep(t.Context())
			ok(t, admin.QueryRow(t.Context(), fmt.Sprintf("SELECT (SELECT count(*) FROM %s_tickets) + (SELECT count(*) FROM %[1]s_processes)", prefix)).Scan(&n))
			return n, err
		},
	}, part, atOnce)
}
