package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A try whose row was swept waits for no transaction that takes the name before it has made the row again.
func TestTryAcquireTxMeetsAnotherAfterASweep(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		tx := begin(t, db)
		must(t, d.AcquireTx(t.Context(), tx, "a"))
		must(t, tx.Commit())
		var sweep, meet atomic.Pointer[func()]
		c := configOf(t, srv.URL())
		address := c.Addr
		c.Params = map[string]string{"innodb_lock_wait_timeout": "1"} // MySQL waits that long
		c.Net = fmt.Sprint("swept", prefixes.Add(1))
		gomysql.RegisterDialContext(c.Net, func(ctx context.Context, _ string) (net.Conn, error) {
			var n net.Dialer
			conn, err := n.DialContext(ctx, "tcp", address)
			return sweptBefore{sweptBefore{conn, "_tx` WHERE name = x'61' AND (", &sweep}, "INTO `" + prefix + "_tx` (name) VALUES", &meet}, err
		})
		t.Cleanup(func() { gomysql.DeregisterDialContext(c.Net) })
		connector, err := gomysql.NewConnector(c)
		must(t, err)
		watched := sql.OpenDB(connector)
		t.Cleanup(func() { _ = watched.Close() })
		_, tries := join(t, watched, prefix)
		f := func() { must(t, d.Sweep(t.Context())) }
		sweep.Store(&f)
		other := begin(t, db)
		g := func() { must(t, d.AcquireTx(t.Context(), other, "a")) }
		meet.Store(&g)
		tx, err = watched.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // it locks no gap
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		err = tries.TryAcquireTx(t.Context(), tx, "a")
		if !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%v, want that another transaction has it", err)
		}
		if sweep.Load() != nil || meet.Load() != nil {
			t.Error("not swept, or not met")
		}
	})
}
