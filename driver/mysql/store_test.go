package mysql_test

import (
	"fmt"
	"testing"

	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
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
				}})
			})
		}
	})
}
