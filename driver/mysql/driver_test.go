package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// Connections that are killed cost neither a holder its lock nor a waiter its ticket.
func TestKilledConnections(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		own := ownAccount(t, srv) // whose connections are killed
		db, admin := connectTo(t, own, ""), connectTo(t, own, "?charset=utf8mb4")
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
		queue, err := a.Inspect(t.Context(), "a")
		must(t, err)
		if len(queue.Tickets) != 2 || queue.Tickets[0].Token != k.Token() {
			t.Errorf("the queue is %+v", queue.Tickets)
		}
		second := queue.Tickets[len(queue.Tickets)-1].Token
		must(t, k.Release(t.Context()))
		if k := <-granted; k != nil {
			if k.Token() != second {
				t.Errorf("granted %d, and %d was queued", k.Token(), second)
			}
			must(t, k.Release(t.Context()))
		}
	})
}

// ownAccount makes an account for one test, and returns its URL.
func ownAccount(t *testing.T, srv *testbed.Server) string {
	t.Helper()
	as, user := configOf(t, srv.URL()), fmt.Sprintf("o%d_%d", time.Now().UnixNano()%1e9, prefixes.Add(1))
	root := connect(t, srv, "?multiStatements=true")
	_, err := root.ExecContext(t.Context(), fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY 's3cret'; GRANT ALL ON %s.* TO %[1]s@'%%'", user, as.DBName))
	must(t, err)
	return fmt.Sprintf("mysql://%s:s3cret@%s/%s", user, as.Addr, as.DBName)
}

// killAll kills all connections of this user but db's own.
func killAll(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1) AND id <> CONNECTION_ID()")
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

func TestTokensGrowOverRestarts(t *testing.T) {
	for _, start := range []func(testing.TB, ...testbed.Option) *testbed.Server{testbed.MariaDB, testbed.MySQL} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
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
				for range 3 {
					k := take(t, l, "a")
					if k.Token() <= last {
						t.Errorf("token %d after %d", k.Token(), last)
					}
					last = k.Token()
					must(t, k.Release(t.Context()))
				}
				srv.Restart()
			}
		})
	}
}

// A user who may not create tables gets an error that says so, and needs no more than rows.
func TestFewRights(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		root := connect(t, srv, "?multiStatements=true")
		user := fmt.Sprintf("u%d", time.Now().UnixNano()%1e9)
		_, err := root.ExecContext(t.Context(), fmt.Sprintf(
			"CREATE USER %s@'%%' IDENTIFIED BY 's3cret'; GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON %s.* TO %s@'%%'", user, configOf(t, srv.URL()).DBName, user))
		must(t, err)
		as := configOf(t, srv.URL())
		db := connectTo(t, fmt.Sprintf("mysql://%s:s3cret@%s/%s", user, as.Addr, as.DBName), "")
		for _, opts := range [][]mysql.Option{nil, {mysql.WithoutCreate()}} {
			l, _, prefix := fresh(t, db, opts...)
			_, err = l.Acquire(t.Context(), "a")
			if err == nil || !strings.Contains(err.Error(), "Schema") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("without tables: %v", err)
			}
			schema, err := mysql.Schema(mysql.WithPrefix(prefix))
			must(t, err)
			_, err = root.ExecContext(t.Context(), schema)
			must(t, err)
			must(t, take(t, l, "a").Release(t.Context()))
			if n := count(t, root, prefix+"_tickets"); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		}
	})
}

// Many processes that make the tables at once do not disturb each other.
func TestAllMakeTheTables(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		const processes = 8
		dbs := make([]*sql.DB, processes)
		for i := range dbs {
			dbs[i] = connect(t, srv, "")
		}
		for range 5 {
			_, _, prefix := fresh(t, dbs[0])
			var group sync.WaitGroup
			for i, db := range dbs {
				l, _ := join(t, db, prefix)
				for g := range 8 {
					group.Go(func() {
						k, err := l.Acquire(t.Context(), fmt.Sprint(i, g))
						if err != nil {
							t.Error(err)
							return
						}
						if err := k.Release(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
			}
			group.Wait()
		}
	})
}

// No ticket is taken for a caller who has left before there was a connection.
func TestNobodyAsksForWhoHasGone(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		direct, _, prefix := fresh(t, connect(t, srv, ""))
		first := take(t, direct, "a")
		must(t, first.Release(t.Context()))
		proxy := srv.Proxy(t)
		cut, _ := join(t, connectTo(t, proxy.URL(), ""), prefix)
		proxy.HoldReplies(true) // there will be a connection, later
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := cut.Acquire(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquired without an answer: %v", err)
		}
		proxy.Heal()
		time.Sleep(time.Second) // a request that was held back has arrived, and would be executed
		second := take(t, direct, "a")
		must(t, second.Release(t.Context()))
		if n := (second.Token() - first.Token()); n != 1 {
			t.Errorf("%d tokens were given, want 1", n)
		}
	})
}

// A database whose disk is full refuses to write: errors say so, holders keep their locks,
// and the driver works again when the disk has space.
func TestDiskFull(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		held := take(t, l, "held", locker.WithTTL(5*time.Second))
		_, err := db.ExecContext(t.Context(), "CREATE TRIGGER "+prefix+"_full BEFORE INSERT ON "+prefix+"_tickets FOR EACH ROW "+
			"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full (tickets)'")
		must(t, err)
		for _, name := range []string{"free", "held"} {
			_, err := l.Acquire(t.Context(), name)
			var full *driver.MySQLError
			if !errors.As(err, &full) || full.Number != 1021 || !strings.Contains(err.Error(), "Disk full") {
				t.Errorf("acquire of what is %s: %v", name, err)
			}
		}
		must(t, held.Err())
		_, err = db.ExecContext(t.Context(), "DROP TRIGGER "+prefix+"_full")
		must(t, err)
		must(t, held.Release(t.Context()))
		for _, name := range []string{"free", "held"} {
			must(t, take(t, l, name).Release(t.Context()))
		}
	})
}

// No name of a table, view or procedure is too long for a server.
func TestLongestPrefix(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		prefix := newPrefix()
		prefix += strings.Repeat("p", 40-len(prefix))
		db := connect(t, srv, "")
		a, _ := join(t, db, prefix)
		b, _ := join(t, db, prefix)
		contend(t, a, b)
	})
}

func TestURL(t *testing.T) {
	for address, want := range map[string]string{
		"mysql://u:s3cret@h/":                                "one host",
		"mysql://u:s3cret@h1,h2/db":                          "one host",
		"mysql://u:s3cret@h/db?tls=maybe":                    "tls",
		"mysql://u:s3cret@h/db?pool_size=0":                  "pool_size",
		"mysql://u:s3cret@h/db?pool=3":                       `unknown parameter "pool"`,
		"mysql://u:s3cret@h/db?parseTime=true":               `unknown parameter "parseTime"`,
		"mysql://u:s3cret@h/db?dial_timeout=3":               "dial_timeout",
		"mysql://u:s3cret@h/db?ca=/x":                        "tls=true",
		"mysql://u:s3cret@h/db?tls=true&ca=/x":               "parameter ca",
		"mysql://u:s3cret@h/db?tls=preferred&ca=/x":          "tls=preferred and ca",
		"mysql://u:s3cret@h/db?timeout=1s&dial_timeout=1s":   "timeout and dial_timeout",
		"mysql://u:s3cret@h/db?password_file=/x":             "password_file",
		"mysql://u@h/db?password_file=/does/not/exist":       "password_file",
		"mysql://u:s3cret@h/db?allowNativePasswords=perhaps": "allowNativePasswords",
		"mysql://u:s3cret@h/db?maxAllowedPacket=many":        "maxAllowedPacket",
		"mysql://u:s3cret@h/db?allowAllFiles=true":           `unknown parameter "allowAllFiles"`,
		"mysql://u:s3cret@h/db?prefix=a%60b":                 "prefix",
		"mysql://u:s3cret@h/db?liveness=1ms":                 "liveness",
		"mysql://u:s3cret@h/db?prefixx=a":                    "known",
		"mysql://u:s3cret@h/db?create=perhaps":               "create",
		"mysql://u:s3cret@127.0.0.1:1/db?pool_size=2":        "refused",
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
