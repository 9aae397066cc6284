package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/internal/testbed"
)

// A try is not refused because a sweep has locked the row of a name that nobody has.
func TestTryAcquireTxWhileSwept(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
			db := connect(t, srv, "")
			_, d, _ := fresh(t, db)
			must(t, d.AcquireTx(t.Context(), begin(t, db), "b"))
			tx := begin(t, db)
			must(t, d.AcquireTx(t.Context(), tx, "a"))
			must(t, tx.Commit())
			sweep := begin(t, db)
			_, err := sweep.ExecContext(t.Context(), d.TxSweep())
			must(t, err)
			tx, err = db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			tried := make(chan error, 1)
			go func() { tried <- d.TryAcquireTx(context.WithoutCancel(t.Context()), tx, "a") }()
			select {
			case err := <-tried:
				t.Errorf("while it is swept: %v", err)
			case <-time.After(300 * time.Millisecond):
				must(t, sweep.Commit())
				must(t, <-tried)
			}
		}
	})
}

// sweptBefore calls a function once, before a text is sent.
type sweptBefore struct {
	net.Conn
	text  string
	sweep *atomic.Pointer[func()]
}

func (c sweptBefore) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.text) {
		if f := c.sweep.Swap(nil); f != nil {
			(*f)()
		}
	}
	return c.Conn.Write(b)
}

// Nor because a sweep has removed it since it was found, and others may take other names then.
func TestTryAcquireTxOfWhatWasSwept(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
			db := connect(t, srv, "")
			_, d, prefix := fresh(t, db)
			tx := begin(t, db)
			must(t, d.AcquireTx(t.Context(), tx, "a"))
			must(t, tx.Commit())
			var sweep atomic.Pointer[func()]
			c := configOf(t, srv.URL())
			address := c.Addr
			c.Net = fmt.Sprint("swept", prefixes.Add(1))
			gomysql.RegisterDialContext(c.Net, func(ctx context.Context, _ string) (net.Conn, error) {
				var n net.Dialer
				conn, err := n.DialContext(ctx, "tcp", address)
				return sweptBefore{conn, "_tx` WHERE name = x'61' AND (", &sweep}, err
			})
			t.Cleanup(func() { gomysql.DeregisterDialContext(c.Net) })
			connector, err := gomysql.NewConnector(c)
			must(t, err)
			watched := sql.OpenDB(connector)
			t.Cleanup(func() { _ = watched.Close() })
			_, tries := join(t, watched, prefix)
			tx, err = watched.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			f := func() { must(t, d.Sweep(t.Context())) }
			sweep.Store(&f)
			must(t, tries.TryAcquireTx(t.Context(), tx, "a"))
			if sweep.Load() != nil {
				t.Error("not swept")
			}
		}
	})
}
