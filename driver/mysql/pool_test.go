package mysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// Work under locks that holds every connection of the pool does not keep the locks from being renewed, released
// or granted.
func TestExhaustedPool(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		for _, size := range []int{1, 3} {
			db := connect(t, srv, "")
			db.SetMaxOpenConns(size)
			a, _, prefix, renewed := freshRenewing(t, db)
			other, _ := join(t, connect(t, srv, ""), prefix)
			k := take(t, a, "a", locker.WithTTL(5*time.Second))
			conns := make([]*sql.Conn, size)
			for i := range conns {
				var err error
				conns[i], err = db.Conn(t.Context())
				must(t, err)
			}
			renewed.await(t, k)
			must(t, k.Release(t.Context()))
			begun := time.Now()
			held := take(t, other, "a")
			go func() {
				time.Sleep(100 * time.Millisecond)
				_ = held.Release(context.Background())
			}()
			must(t, take(t, a, "a").Release(t.Context()))
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("pool of %d: granted after %v", size, took)
			}
			for _, c := range conns {
				must(t, c.Close())
			}
			must(t, a.Close())
			if n := db.Stats().MaxOpenConnections; n != size {
				t.Errorf("the limit of the pool is %d after Close, and was %d", n, size)
			}
		}
	})
}

// The connection beyond the pool's limit is closed after each request, and the limit is as it was,
// also where drivers share the pool.
func TestExtraConnectionIsClosed(t *testing.T) {
	t.Parallel()
	db := connect(t, testbed.SharedMariaDB(t), "")
	db.SetMaxOpenConns(1)
	a, _, _ := fresh(t, db)
	b, _, _ := fresh(t, db)
	for _, l := range []*locker.Client{a, b} {
		must(t, take(t, l, "a").Release(t.Context()))
	}
	c, err := db.Conn(t.Context())
	must(t, err)
	var group sync.WaitGroup
	for _, l := range []*locker.Client{a, b} {
		for i := range 4 {
			group.Go(func() {
				name := fmt.Sprint("n", i)
				k, err := l.Acquire(t.Context(), name)
				if err == nil {
					err = k.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	s := db.Stats() // what a process asks for its waiters by itself may go on for a moment after the last of them
	for end := time.Now().Add(5 * time.Second); s.MaxOpenConnections != 1 || s.OpenConnections != 1; s = db.Stats() {
		if time.Now().After(end) {
			t.Fatalf("%d of %d connections are open, want 1 of 1", s.OpenConnections, s.MaxOpenConnections)
		}
		time.Sleep(5 * time.Millisecond)
	}
	must(t, c.Close())
	must(t, take(t, a, "a").Release(t.Context()))
}

// If a program changes the limit of its pool while that is raised, the pool still has one afterwards.
func TestLimitThatIsChangedWhileItIsRaised(t *testing.T) {
	db := connect(t, testbed.SharedMariaDB(t), "")
	db.SetMaxOpenConns(1)
	_, d, _ := fresh(t, db)
	c, err := db.Conn(t.Context())
	must(t, err)
	defer c.Close()
	must(t, d.UseConn(t.Context(), func() { db.SetMaxOpenConns(1) }))
	if n := db.Stats().MaxOpenConnections; n != 1 {
		t.Errorf("the limit is %d, want 1 (0: none)", n)
	}
}

// If tables are dropped while they are in use, the drivers that use them do not make them again: they would grant
// what others hold.
func TestVanishedTables(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		k := take(t, l, "a")
		for _, table := range []string{"tickets", "slots", "processes"} {
			_, err := db.ExecContext(t.Context(), "DROP TABLE "+prefix+"_"+table)
			must(t, err)
		}
		took := testbed.Elapsed(func() {
			for _, name := range []string{"a", "b"} {
				if _, err := l.TryAcquire(t.Context(), name); err == nil || errors.Is(err, locker.ErrNotAcquired) || !strings.Contains(err.Error(), "vanished") {
					t.Errorf("try to acquire %s without tables: %v", name, err)
				}
			}
		})
		if took > 500*time.Millisecond {
			t.Errorf("reported after %v", took)
		}
		var n int
		must(t, db.QueryRowContext(t.Context(), fmt.Sprintf(
			"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND table_name LIKE '%s%%' AND table_name NOT LIKE '%%tx'", prefix)).Scan(&n))
		if n != 0 {
			t.Errorf("%d tables were made anew", n)
		}
		_ = k
		again, _ := join(t, db, prefix) // a process that starts now makes them
		must(t, take(t, again, "a").Release(t.Context()))
	})
}

// If somebody drops what is there beside the table of tickets, the error says how to create it, and that does.
func TestPartsThatVanish(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db, root := connect(t, srv, ""), connect(t, srv, "?multiStatements=true")
		parts := []string{"TABLE PREFIX_slots", "TABLE PREFIX_processes", "TABLE PREFIX_tx"}
		for _, name := range mysql.Procedures {
			parts = append(parts, "PROCEDURE PREFIX"+strings.TrimPrefix(name, "call")+"_VERSION")
		}
		for _, part := range parts {
			t.Run(part, func(t *testing.T) {
				t.Parallel()
				_, d, prefix := fresh(t, db)
				must(t, d.Ping(t.Context()))
				do(t, db, "DROP "+strings.NewReplacer("PREFIX", prefix, "VERSION", strings.Trim(mysql.SlotColumn, "`")).Replace(part))
				if err := d.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "mysql.Schema") {
					t.Errorf("the error is %v", err)
				}
				sql, err := mysql.Schema(mysql.WithPrefix(prefix))
				must(t, err)
				do(t, root, sql)
				must(t, d.Ping(t.Context()))
			})
		}
	})
}

// A release that grants is done when it is committed: that the process of the next ticket could not be woken is no error of it, and
// the process finds its grant.
func TestReleaseThatWakesNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		_, d := join(t, connect(t, srv, ""), prefix)
		k := take(t, l, "b")
		var group sync.WaitGroup
		defer group.Wait()
		granted := behind(t, &group, d, driver.Request{Name: "b", ID: "waiter"})
		awaitSleep(t, db, prefix)
		do(t, db, "DROP PROCEDURE "+prefix+"_wake_"+strings.Trim(mysql.SlotColumn, "`"))
		must(t, k.Release(t.Context()))
		granted()
	})
}

// Missing rights are reported at once, by Ping too, and leave nothing to remove.
func TestMissingRights(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		root := connect(t, srv, "?multiStatements=true")
		l, all, prefix := fresh(t, root)
		must(t, take(t, l, "a").Release(t.Context()))
		must(t, all.Ping(t.Context()))
		as := configOf(t, srv.URL())
		for i, rights := range []string{"SELECT", "SELECT, INSERT, UPDATE", "SELECT, UPDATE, DELETE", "SELECT, INSERT, DELETE", "INSERT, UPDATE, DELETE"} {
			user := fmt.Sprintf("m%d_%d", i, time.Now().UnixNano()%1e9)
			_, err := root.ExecContext(t.Context(), fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY 's3cret'; GRANT %s ON %s.* TO %s@'%%'", user, rights, as.DBName, user))
			must(t, err)
			few, d := join(t, connectTo(t, fmt.Sprintf("mysql://%s:s3cret@%s/%s", user, as.Addr, as.DBName), ""), prefix)
			took := testbed.Elapsed(func() { err = d.Ping(t.Context()) })
			if err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "denied") {
				t.Errorf("%s: ping: %v", rights, err)
			}
			if rights == "SELECT, INSERT, UPDATE" {
				continue // locks are taken and cannot be released: Ping reports it
			}
			took += testbed.Elapsed(func() { _, err = few.TryAcquire(t.Context(), "a") })
			if err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "denied") {
				t.Errorf("%s: %v", rights, err)
			}
			if took > 500*time.Millisecond {
				t.Errorf("%s: reported after %v: %v", rights, took, err)
			}
		}
	})
}

// A driver that has found the tables, if only to look, does not make them again, and does not say that nobody holds
// anything.
func TestVanishedTablesOfWhoHasLooked(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		k := take(t, l, "a")
		_, looker := join(t, db, prefix)
		queue, err := looker.Inspect(t.Context(), "a")
		must(t, err)
		if len(queue) != 1 {
			t.Fatalf("the queue is %+v", queue)
		}
		for _, table := range []string{"tickets", "slots", "processes", "tx"} {
			_, err := db.ExecContext(t.Context(), "DROP TABLE "+prefix+"_"+table)
			must(t, err)
		}
		if queue, err := looker.Inspect(t.Context(), "a"); err == nil {
			t.Errorf("without the tables the queue is %+v, and no error", queue)
		}
		if names, err := looker.List(t.Context()); err == nil {
			t.Errorf("without the tables the names are %q, and no error", names)
		}
		if g, err := looker.Acquire(t.Context(), request("two", false)); err == nil {
			t.Errorf("granted %d, while %d is held (%v)", g.Token, k.Token(), k.Err())
		}
		again, _ := join(t, db, prefix) // a process that starts now makes them
		must(t, take(t, again, "b").Release(t.Context()))
	})
}

// A sweep leaves the connection beyond the pool's limit to what has to be done in time.
func TestSweepLeavesTheConnectionBeyondTheLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		db.SetMaxOpenConns(1)
		_, d, prefix := fresh(t, db)
		r := driver.Request{Name: "a", ID: "kept", TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		mine, err := db.Conn(t.Context()) // all that there is
		must(t, err)
		_, err = mine.ExecContext(t.Context(), "LOCK TABLES "+prefix+"_processes WRITE")
		must(t, err)
		swept := make(chan struct{})
		go func() { defer close(swept); _ = d.Sweep(t.Context()) }()
		time.Sleep(400 * time.Millisecond) // it waits
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); err != nil {
			t.Errorf("a renewal during a sweep: %v", err)
		}
		_, err = mine.ExecContext(t.Context(), "UNLOCK TABLES")
		must(t, err)
		must(t, mine.Close())
		<-swept
	})
}

// panicking is a connector of the user that panics once, and whose connections do.
type panicking struct {
	sqldriver.Connector
	connects, executes *atomic.Bool
}

func (p panicking) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if p.connects.Swap(false) {
		panic("the user's connector")
	}
	c, err := p.Connector.Connect(ctx)
	return panickingConn{c, p.executes}, err
}

type panickingConn struct {
	sqldriver.Conn
	executes *atomic.Bool
}

func (c panickingConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if c.executes.Swap(false) {
		panic("the user's connection")
	}
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, args)
}

func (c panickingConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, text, args)
}

// After a panic in the user's code the connection is back in the pool, and the pool's limit is as it was.
func TestPanicLeavesThePool(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		connector, err := gomysql.NewConnector(configOf(t, srv.URL()))
		must(t, err)
		var connects, executes atomic.Bool
		db := sql.OpenDB(panicking{connector, &connects, &executes})
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(1)
		_, d, _ := fresh(t, db)
		r := driver.Request{Name: "a", ID: "kept", TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		panics := func() {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Error("there was no panic")
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_ = d.Renew(ctx, r.Hold(g.Token), time.Minute)
		}
		executes.Store(true)
		panics()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		mine, err := db.Conn(ctx) // the only one
		must(t, err)
		defer mine.Close()
		connects.Store(true)
		panics()
		if n := db.Stats().MaxOpenConnections; n != 1 {
			t.Errorf("the limit of the pool is %d", n)
		}
	})
}
