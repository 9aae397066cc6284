package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestStore(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		for what, waits := range map[string]bool{"nothing waits": false, "the process waits": true} {
			t.Run(what, func(t *testing.T) {
				db := connect(t, srv, "")
				_, d, prefix := fresh(t, db)
				must(t, d.Ping(t.Context()))
				if waits {
					d.Waits()
				}
				sqltest.StoreKeepsItsRules(t, sqltest.Tables{Store: d.Store(), Late: true, Rows: func() (n int, err error) {
					err = db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT (SELECT COUNT(*) FROM `%s_tickets` WHERE id IS NOT NULL) + (SELECT COUNT(*) FROM `%[1]s_processes`)", prefix)).Scan(&n)
					return n, err
				}, Renew: func(process int64, name string) (func() error, error) {
					tx, err := db.BeginTx(t.Context(), nil)
					must(t, err)
					_, err = tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE `%s_processes` SET alive_until = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE id = %d", prefix, process))
					must(t, err)
					_, err = tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE `%s_tickets` FORCE INDEX (PRIMARY) SET expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE entry = '%s'", prefix, name))
					return tx.Commit, err
				}})
			})
		}
	})
}

// Without a notice a process finds its grants when it begins to sleep again, which it does every two seconds.
func TestNotices(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		prefix := newPrefix()
		sqltest.NoticesArrive(t, func() sqltest.Listener {
			_, d := join(t, connect(t, srv, ""), prefix, mysql.WithLiveness(time.Hour))
			return d
		}, time.Second, testbed.Elapsed)
	})
}
