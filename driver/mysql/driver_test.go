package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onBoth runs a test on MariaDB and, where there is one, on MySQL.
func onBoth(t *testing.T, test func(t *testing.T, srv *testbed.Server)) {
	t.Helper()
	t.Run("MariaDB", func(t *testing.T) { test(t, testbed.SharedMariaDB(t)) })
	t.Run("MySQL", func(t *testing.T) { test(t, testbed.SharedMySQL(t)) })
}

var prefixes atomic.Int64

// fresh makes a driver with tables of its own.
func fresh(t *testing.T, db *sql.DB, opts ...mysql.Option) (*locker.Client, *mysql.Driver, string) {
	t.Helper()
	prefix := fmt.Sprintf("t%d_%d", time.Now().UnixNano(), prefixes.Add(1))
	l, d := join(t, db, prefix, opts...)
	return l, d, prefix
}

func join(t *testing.T, db *sql.DB, prefix string, opts ...mysql.Option) (*locker.Client, *mysql.Driver) {
	t.Helper()
	d, err := mysql.New(db, append(opts, mysql.WithPrefix(prefix))...)
	must(t, err)
	l := locker.New(d)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, l *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	k, err := l.Acquire(ctx, name, opts...)
	must(t, err)
	return k
}

func questions(t *testing.T, db *sql.DB) int {
	t.Helper()
	var name, value string
	must(t, db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &value))
	n, err := strconv.Atoi(value)
	must(t, err)
	return n
}

func TestStatementsOfACycle(t *testing.T) {
	for _, start := range []func(testing.TB, ...testbed.Option) *testbed.Server{testbed.MariaDB, testbed.MySQL} {
		t.Run("", func(t *testing.T) {
			db := connect(t, start(t), "")
			l, _, _ := fresh(t, db)
			must(t, take(t, l, "a").Release(t.Context()))
			const cycles = 100
			before := questions(t, db)
			for range cycles {
				must(t, take(t, l, "a").Release(t.Context()))
			}
			if n := questions(t, db) - before - 1; n != 2*cycles {
				t.Errorf("%d statements for %d cycles of acquire and release, want 2 each", n, cycles)
			}
		})
	}
}

func TestWaitersCostNoStatements(t *testing.T) {
	db := connect(t, testbed.MariaDB(t), "")
	db.SetMaxOpenConns(8)
	l, _, _ := fresh(t, db)
	k := take(t, l, "a")
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	waiting := 0
	wait := func(n int) {
		for range n {
			group.Go(func() {
				if k, err := l.Acquire(ctx, "a"); err == nil {
					_ = k.Release(context.Background())
				}
			})
		}
		waiting += n
		for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			line, err := l.Inspect(t.Context(), "a")
			must(t, err)
			if len(line.Tickets) == waiting+1 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d tickets stand in line, want %d", len(line.Tickets), waiting+1)
			}
		}
	}
	for _, n := range []int{10, 1000} {
		wait(n - waiting)
		time.Sleep(time.Second) // the line is at rest
		const seconds = 4
		before := questions(t, db)
		time.Sleep(seconds * time.Second)
		rate := (questions(t, db) - before - 1) / seconds
		t.Logf("%d waiters: %d statements a second", n, rate)
		if rate > 20 { // 10 looks, a beat, a renewal now and then
			t.Errorf("%d waiters cost %d statements a second", n, rate)
		}
	}
	cancel()
	group.Wait()
	must(t, k.Release(t.Context()))
}

// Whatever the DSN and however few the connections.
func TestAnyPool(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		isolation := "transaction_isolation"
		if strings.HasPrefix(t.Name(), "TestAnyPool/MariaDB") {
			isolation = "tx_isolation"
		}
		for _, dsn := range []string{
			"",
			"?clientFoundRows=true&parseTime=true&loc=Local",
			"?interpolateParams=true&sql_mode=%27ANSI_QUOTES%2CNO_BACKSLASH_ESCAPES%27&time_zone=%27%2B05%3A00%27",
			"?charset=latin1&" + isolation + "=%27READ-COMMITTED%27",
			"?" + isolation + "=%27SERIALIZABLE%27",
		} {
			t.Run(dsn, func(t *testing.T) {
				one, many := connect(t, srv, dsn), connect(t, srv, dsn)
				one.SetMaxOpenConns(1)
				a, _, prefix := fresh(t, one)
				b, _ := join(t, many, prefix)
				contend(t, a, b)
			})
		}
	})
}

// contend has two processes of some goroutines go through all kinds of locks.
func contend(t *testing.T, clients ...*locker.Client) {
	t.Helper()
	var (
		group sync.WaitGroup
		inner atomic.Int64
	)
	for _, l := range clients {
		for g := range 8 {
			group.Go(func() {
				for i := range 10 {
					name := fmt.Sprint("n", (i+g)%2)
					var opts []locker.Option
					if name == "n1" && g%2 == 0 {
						opts = append(opts, locker.Limit(2))
					}
					ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
					k, err := l.Acquire(ctx, name, opts...)
					cancel()
					if err != nil {
						t.Error(err)
						return
					}
					if name == "n0" && inner.Add(1) != 1 {
						t.Error("two hold n0")
					}
					if name == "n0" {
						inner.Add(-1)
					}
					if err := k.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
}

func TestSchemaForbidsTwoHolders(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		k := take(t, l, "a")
		_, err := db.ExecContext(t.Context(), "INSERT INTO "+prefix+"_tickets (place, name, id, owner, note, shared, permits, held, since, expires) "+
			"VALUES (x'ff31', 'a', '1', '', '', 0, 0, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))")
		var e *gomysql.MySQLError
		if !errors.As(err, &e) || e.Number != 1062 || !strings.Contains(e.Message, "sole") {
			t.Errorf("a second exclusive holder, by hand: %v", err)
		}
		must(t, k.Release(t.Context()))
	})
}

// Connections that are killed cost neither a holder its lock nor a waiter its place.
func TestKilledConnections(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db, admin := connect(t, srv, ""), connect(t, srv, "?charset=utf8mb4")
		admin.SetMaxOpenConns(1)
		a, _, prefix := fresh(t, db)
		b, _ := join(t, db, prefix)
		k := take(t, a, "a", locker.WithTTL(3*time.Second))
		granted := make(chan *locker.Lock, 1)
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() {
			k, err := b.Acquire(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			granted <- k
		})
		for range 10 {
			killAll(t, admin)
			time.Sleep(300 * time.Millisecond)
		}
		must(t, k.Err())
		line, err := a.Inspect(t.Context(), "a")
		must(t, err)
		if len(line.Tickets) != 2 || line.Tickets[0].Token != k.Token() {
			t.Errorf("the line is %+v", line.Tickets)
		}
		second := line.Tickets[len(line.Tickets)-1].Token
		must(t, k.Release(t.Context()))
		if k := <-granted; k != nil {
			if k.Token() != second {
				t.Errorf("granted %d, and %d stood in line", k.Token(), second)
			}
			must(t, k.Release(t.Context()))
		}
	})
}

// killAll kills all connections of root's but db's own.
func killAll(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()")
	must(t, err)
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		must(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	must(t, rows.Err())
	for _, id := range ids {
		_, _ = db.ExecContext(t.Context(), fmt.Sprint("KILL ", id)) // it may be gone
	}
}

// Two tickets of a name must not be numbered in one order and become visible in the
// other: while somebody who takes one has not committed, nobody else takes one.
func TestNumbersBecomeVisibleInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		k := take(t, l, "held") // a gate, to queue behind
		for _, name := range []string{"free", "held"} {
			want := 0
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			wait := func(taken *atomic.Bool) {
				if k, err := l.Acquire(ctx, name); err == nil {
					taken.Store(true)
					_ = k.Release(context.Background())
				}
			}
			if name == "held" { // somebody here waits, so that others queue without knocking
				want = 2
				group.Go(func() { wait(new(atomic.Bool)) })
				time.Sleep(300 * time.Millisecond)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			var slot int
			must(t, tx.QueryRowContext(t.Context(), fmt.Sprintf("SELECT slot FROM %s_slots WHERE slot = %d LOCK IN SHARE MODE",
				prefix, mysql.SlotOf(name))).Scan(&slot))
			var taken atomic.Bool
			group.Go(func() { wait(&taken) })
			time.Sleep(300 * time.Millisecond)
			line, err := l.Inspect(t.Context(), name)
			must(t, err)
			if len(line.Tickets) != want || taken.Load() {
				t.Errorf("%s: the line is %+v while the slot is locked, want %d", name, line.Tickets, want)
			}
			must(t, tx.Rollback())
			cancel()
			group.Wait()
		}
		must(t, k.Release(t.Context()))
	})
}

// A lease that is over is not renewed, even if nobody has removed it yet.
func TestLateRenewal(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		_, d, _ := fresh(t, connect(t, srv, ""))
		r := driver.Request{Name: "a", ID: "late-1", TTL: 100 * time.Millisecond}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		time.Sleep(200 * time.Millisecond)
		if err := d.Renew(t.Context(), r.Hold(g.Token), time.Minute); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a renewal after the end of the lease: %v", err)
		}
	})
}

func TestTokensGrowOverRestarts(t *testing.T) {
	for _, start := range []func(testing.TB, ...testbed.Option) *testbed.Server{testbed.MariaDB, testbed.MySQL} {
		t.Run("", func(t *testing.T) {
			srv := start(t, testbed.Faults(), testbed.Durable())
			db := connect(t, srv, "")
			l, d, prefix := fresh(t, db)
			var last uint64
			for range 3 {
				k := take(t, l, "a")
				if k.Token() <= last {
					t.Errorf("token %d after %d", k.Token(), last)
				}
				last = k.Token()
				must(t, k.Release(t.Context()))
				must(t, d.Sweep(t.Context()))
				if n := count(t, db, prefix+"_tickets"); n != 0 {
					t.Errorf("%d rows are left", n)
				}
				srv.Restart()
			}
		})
	}
}

func count(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}

// A user who may not create tables is told so, and needs no more than rows.
func TestFewRights(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		root := connect(t, srv, "?multiStatements=true")
		user := fmt.Sprintf("u%d", time.Now().UnixNano()%1e9)
		_, err := root.ExecContext(t.Context(), fmt.Sprintf(
			"CREATE USER %s@'%%' IDENTIFIED BY 's3cret'; GRANT SELECT, INSERT, UPDATE, DELETE ON locker.* TO %s@'%%'", user, user))
		must(t, err)
		db, err := sql.Open("mysql", user+":s3cret@tcp("+srv.Addr()+")/locker")
		must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		for _, opts := range [][]mysql.Option{nil, {mysql.WithoutCreate()}} {
			l, d, prefix := fresh(t, db, opts...)
			_, err = l.Acquire(t.Context(), "a")
			if err == nil || !strings.Contains(err.Error(), "Schema") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("without tables: %v", err)
			}
			_, err = root.ExecContext(t.Context(), d.Schema())
			must(t, err)
			must(t, take(t, l, "a").Release(t.Context()))
			if n := count(t, root, prefix+"_tickets"); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		}
	})
}

func TestURL(t *testing.T) {
	for address, want := range map[string]string{
		"mysql://u:s3cret@h/":                    "one host",
		"mysql://u:s3cret@h1,h2/db":              "one host",
		"mysql://u:s3cret@h/db?tls=maybe":        "tls",
		"mysql://u:s3cret@h/db?pool=0":           "pool",
		"mysql://u:s3cret@h/db?prefix=a%60b":     "prefix",
		"mysql://u:s3cret@h/db?liveness=1ms":     "liveness",
		"mysql://u:s3cret@h/db?prefixx=a":        "known",
		"mysql://u:s3cret@h/db?create=perhaps":   "create",
		"mysql://u:s3cret@127.0.0.1:1/db?pool=2": "refused",
	} {
		l, err := locker.Open(t.Context(), address)
		if err == nil {
			_, err = l.TryAcquire(t.Context(), "a")
			must(t, l.Close())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q in it and no password", address, err, want)
		}
	}
	if _, err := mysql.New(nil); err == nil {
		t.Error("New(nil): no error")
	}
}
