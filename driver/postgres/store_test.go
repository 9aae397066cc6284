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
	}, Renew: func(process int64, name string) (func() error, error) {
		tx, err := p.Begin(t.Context())
		ok(t, err)
		_, err = tx.Exec(t.Context(), fmt.Sprintf("UPDATE %s_processes SET alive_until = now() + interval '1 hour' WHERE id = $1", prefix), process)
		ok(t, err)
		_, err = tx.Exec(t.Context(), fmt.Sprintf("UPDATE %s_tickets SET expires_at = now() + interval '1 hour' WHERE name = $1 AND slot = 0", prefix), []byte(name))
		return func() error { return tx.Commit(t.Context()) }, err
	}})
}

func TestNotices(t *testing.T) {
	t.Parallel()
	prefix := unique()
	sqltest.NoticesArrive(t, func() sqltest.Listener {
		d, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix), postgres.WithLiveness(time.Hour))
		return d
	}, 10*time.Second, testbed.Elapsed)
}
