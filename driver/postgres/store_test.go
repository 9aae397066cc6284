package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestStore(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ok(t, d.Ping(t.Context()))
	sqltest.StoreKeepsItsRules(t, sqltest.Tables{Store: d.Store(), Late: true, Rows: func() (n int, err error) {
		err = p.QueryRow(t.Context(), fmt.Sprintf("SELECT (SELECT count(*) FROM %s_tickets) + (SELECT count(*) FROM %[1]s_processes WHERE id <> 0)", prefix)).Scan(&n)
		return n, err
	}})
}

func TestNotices(t *testing.T) {
	t.Parallel()
	prefix := unique()
	sqltest.NoticesArrive(t, func() sqltest.Listener {
		d, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix), postgres.WithLiveness(time.Hour))
		return d
	}, 10*time.Second)
}
