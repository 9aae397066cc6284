package mysql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// refused reports whether err says what to do about sessions without autocommit.
func refused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "autocommit=1") &&
		!errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrNotAcquired)
}

// A pool without autocommit is refused, and leaves nothing that others wait for.
func TestAutocommitOff(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		off := connect(t, srv, "?autocommit=0")
		_, d, prefix := fresh(t, off)
		other, _ := join(t, connect(t, srv, ""), prefix)
		for _, tables := range []bool{false, true} {
			if tables {
				must(t, take(t, other, "x").Release(t.Context()))
			}
			begun := time.Now()
			for i := range 4 {
				r := driver.Request{Name: "a", ID: fmt.Sprint("off-", i), TTL: time.Minute, Wait: i%2 == 0, Shared: i < 2}
				if _, err := d.Acquire(t.Context(), r); !refused(err) {
					t.Fatalf("acquired, and all that follows would wait for it, %+v: %v", r, err)
				}
			}
			if _, err := d.Inspect(t.Context(), "a"); !refused(err) {
				t.Errorf("inspect: %v", err)
			}
			if _, err := d.List(t.Context()); !refused(err) {
				t.Errorf("list: %v", err)
			}
			h := driver.Hold{Name: "a", ID: "1", Token: 1}
			if err := d.Renew(t.Context(), h, time.Minute); !refused(err) {
				t.Errorf("renew: %v", err)
			}
			if err := d.Release(t.Context(), h); !refused(err) {
				t.Errorf("release: %v", err)
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("refused after %v", took)
			}
			took := testbed.Elapsed(func() { must(t, take(t, other, "a").Release(t.Context())) })
			if took > time.Second {
				t.Errorf("another process acquired after %v", took)
			}
		}
	})
}

// A session that loses autocommit later, or is the only one without it, changes
// nothing, and its errors say so.
func TestOneSessionWithoutAutocommit(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		db.SetMaxOpenConns(1)
		_, d, prefix := fresh(t, db)
		other, _ := join(t, connect(t, srv, ""), prefix)
		for _, used := range []bool{false, true} {
			r := driver.Request{Name: "a", ID: "one-0", TTL: time.Minute, Wait: true}
			if used {
				g, err := d.Acquire(t.Context(), r)
				must(t, err)
				must(t, d.Release(t.Context(), r.Hold(g.Token)))
			}
			set := func(to string) {
				_, err := db.ExecContext(t.Context(), "SET autocommit="+to)
				must(t, err)
			}
			set("0")
			r.ID = "two-" + prefix[len(prefix)-1:]
			if _, err := d.Acquire(t.Context(), r); !refused(err) {
				t.Errorf("acquired: %v", err)
			}
			must(t, take(t, other, "a").Release(t.Context()))
			set("1")
			if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a ticket was left: %v", err)
			}
			g, err := d.Acquire(t.Context(), r)
			must(t, err)
			set("0")
			if err := d.Renew(t.Context(), r.Hold(g.Token), time.Hour); !refused(err) {
				t.Errorf("renewed: %v", err)
			}
			if err := d.Release(t.Context(), r.Hold(g.Token)); !refused(err) {
				t.Errorf("released: %v", err)
			}
			queue, err := other.Inspect(t.Context(), "a")
			must(t, err)
			if len(queue.Tickets) != 1 || queue.Tickets[0].Remaining > time.Minute {
				t.Errorf("the queue is %+v", queue.Tickets)
			}
			set("1")
			must(t, d.Renew(t.Context(), r.Hold(g.Token), time.Minute))
			must(t, d.Release(t.Context(), r.Hold(g.Token)))
		}
	})
}

// Where the server's default is off, a driver that was opened by URL turns it on, and a
// pool is refused.
func TestAutocommitOffByDefault(t *testing.T) {
	for _, start := range []func(testing.TB, ...testbed.Option) *testbed.Server{testbed.MariaDB, testbed.MySQL} {
		t.Run("", func(t *testing.T) {
			srv := start(t, testbed.Args("--autocommit=0"))
			l, err := locker.Open(t.Context(), srv.URL())
			must(t, err)
			t.Cleanup(func() { must(t, l.Close()) })
			db := connect(t, srv, "")
			pool, err := mysql.New(db)
			must(t, err)
			t.Cleanup(func() { must(t, pool.Close()) })
			var on bool
			must(t, db.QueryRowContext(t.Context(), "SELECT @@autocommit").Scan(&on))
			if on {
				t.Fatal("autocommit is on")
			}
			k := take(t, l, "a")
			if n := count(t, db, "locker_tickets"); n != 1 {
				t.Errorf("%d rows are committed, want 1", n)
			}
			if _, err := pool.Acquire(t.Context(), driver.Request{Name: "a", ID: "pool-1", TTL: time.Minute}); !refused(err) {
				t.Errorf("by a pool: %v", err)
			}
			must(t, k.Release(t.Context()))
			on1, err := mysql.New(connect(t, srv, "?autocommit=1"))
			must(t, err)
			o := locker.New(on1)
			t.Cleanup(func() { must(t, o.Close()) })
			contend(t, l, o)
		})
	}
}

// Nor does a session that somebody has left in a transaction, by a BEGIN that was sent to the pool: what is done there may be undone.
// Only MariaDB says so.
func TestSessionInATransaction(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMariaDB(t)
	db := connect(t, srv, "")
	db.SetMaxOpenConns(1)
	_, d, prefix := fresh(t, db)
	other, _ := join(t, connect(t, srv, ""), prefix)
	must(t, take(t, other, "a").Release(t.Context()))
	held := driver.Request{Name: "b", ID: "held", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), held)
	must(t, err)
	do(t, db, "BEGIN")
	refuses := func(what string, err error) {
		t.Helper()
		if !refused(err) || !strings.Contains(err.Error(), "transaction") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, wait := range []bool{false, true} {
		_, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: fmt.Sprint("in-tx-", wait), TTL: time.Minute, Wait: wait})
		refuses("acquire", err)
	}
	refuses("renew", d.Renew(t.Context(), held.Hold(g.Token), time.Hour))
	refuses("release", d.Release(t.Context(), held.Hold(g.Token)))
	_, err = d.Inspect(t.Context(), "b")
	refuses("inspect", err)
	must(t, take(t, other, "a").Release(t.Context())) // and waits for nobody
	do(t, db, "ROLLBACK")
	must(t, d.Release(t.Context(), held.Hold(g.Token)))
}
