package sqlite_test

import (
	"testing"

	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := openAt(t, path)
	db := openDB(path)
	defer db.Close()
	sqltest.StoreKeepsItsRules(t, sqltest.Tables{Store: d.Store(), Rows: func() (n int, err error) {
		err = db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM tickets) + (SELECT count(*) FROM processes)").Scan(&n)
		return n, err
	}})
}
