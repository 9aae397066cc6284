package mysql_test

import (
	"context"
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

// Locks work with any DSN, and with few connections.
func TestAnyPool(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
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
			"?autocommit=1",
			"?completion_type=%27CHAIN%27",
		} {
			t.Run(dsn, func(t *testing.T) {
				one, many := connect(t, srv, dsn), connect(t, srv, dsn)
				one.SetMaxOpenConns(1)
				a, _, prefix := fresh(t, one)
				b, _ := join(t, many, prefix)
				contend(t, a, b)
			})
		}
		t.Run("?autocommit=0", func(t *testing.T) {
			_, d, _ := fresh(t, connect(t, srv, "?autocommit=0"))
			if _, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: "off-1", TTL: time.Minute}); !refused(err) {
				t.Errorf("acquired: %v", err)
			}
		})
	})
}

// contend takes all kinds of locks in some goroutines of two processes.
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
		_, err := db.ExecContext(t.Context(), "INSERT INTO "+prefix+"_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) "+
			"VALUES (x'ff31', 'a', '1', 1, 0, 1, '', '', 0, 0, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))")
		var e *gomysql.MySQLError
		if !errors.As(err, &e) || e.Number != 4025 && e.Number != 3819 {
			t.Errorf("a second exclusive holder, by hand: %v", err)
		}
		must(t, k.Release(t.Context()))
	})
}

// queued waits until a queue has so many tickets.
func queued(t *testing.T, l *locker.Client, name string, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		queue, err := l.Inspect(t.Context(), name)
		must(t, err)
		if len(queue.Tickets) == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the queue of %s is %+v, want %d tickets", name, queue.Tickets, n)
		}
	}
}

// Two tickets of a name must not get their tokens in one order and become visible in the
// other: while the insertion of one is not committed, no other is inserted.
func TestTokensBecomeVisibleInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		k := take(t, l, "held") // an anchor, after which tickets are queued
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
			if name == "held" { // somebody here waits, so that others are queued at once
				want = 2
				group.Go(func() { wait(new(atomic.Bool)) })
				queued(t, l, name, want)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			var slot int
			must(t, tx.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %s FROM %s_slots WHERE %[1]s = %[3]d LOCK IN SHARE MODE",
				mysql.SlotColumn, prefix, mysql.SlotOf(name))).Scan(&slot))
			var taken atomic.Bool
			group.Go(func() { wait(&taken) })
			time.Sleep(300 * time.Millisecond)
			queue, err := l.Inspect(t.Context(), name)
			must(t, err)
			if len(queue.Tickets) != want || taken.Load() {
				t.Errorf("%s: the queue is %+v while the slot is locked, want %d", name, queue.Tickets, want)
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

// A ticket gets its token when it has locked its slot, not while it waits for the slot:
// tickets inserted meanwhile have lower tokens.
func TestTokensAreGivenUnderTheSlot(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		must(t, take(t, l, "late").Release(t.Context()))
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		var slot int
		must(t, tx.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %s FROM %s_slots WHERE %[1]s = %[3]d FOR UPDATE",
			mysql.SlotColumn, prefix, mysql.SlotOf("late"))).Scan(&slot))
		late := make(chan uint64, 1)
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() {
			k, err := l.Acquire(t.Context(), "late")
			if err != nil {
				t.Error(err)
				late <- 0
				return
			}
			late <- k.Token()
			_ = k.Release(context.Background())
		})
		time.Sleep(300 * time.Millisecond) // it waits for its slot
		k := take(t, l, "other")
		must(t, k.Release(t.Context()))
		must(t, tx.Rollback())
		if token := <-late; token <= k.Token() {
			t.Errorf("token %d was given before the slot was locked: %d is of a ticket inserted meanwhile", token, k.Token())
		}
	})
}
