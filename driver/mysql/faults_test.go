package mysql_test

import (
	"database/sql"
	"fmt"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// Whichever statement of a process meets a fault, what the driver promises is kept.
func TestFaultAtEachStatement(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMariaDB(t)
	admin := connect(t, srv, "")
	_, d, prefix := fresh(t, admin)
	must(t, d.Ping(t.Context()))
	part, atOnce := 37, 24 // it has no divisor in common with the number of faults
	if testbed.All() {
		part, atOnce = 1, 40
	}
	sqltest.FaultAtEachStatement(t, sqltest.Bed{
		Open: func(dial sqltest.Dial) (driver.Driver, func(), error) {
			c := configOf(t, srv.URL())
			c.DialFunc, c.Logger = dial, &gomysql.NopLogger{}
			connector, err := gomysql.NewConnector(c)
			if err != nil {
				return nil, nil, err
			}
			db := sql.OpenDB(connector)
			d, err := mysql.New(db, mysql.WithPrefix(prefix))
			return d, func() { _, _ = d.Close(), db.Close() }, err
		},
		IsStatement: func(packet []byte) bool { return len(packet) > 4 && packet[3] == 0 && packet[4] == 3 },
		Left: func() (int, error) {
			err := d.Sweep(t.Context())
			return count(t, admin, fmt.Sprintf("(SELECT id FROM %s_processes UNION ALL SELECT process FROM %[1]s_tickets) AS x", prefix)), err
		},
	}, part, atOnce)
}
