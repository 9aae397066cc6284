package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

func questions(t *testing.T, db *sql.DB) int {
	t.Helper()
	var name, value string
	must(t, db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &value))
	n, err := strconv.Atoi(value)
	must(t, err)
	return n
}

// questionsASecond counts for four seconds or, on a busy machine, a little longer.
func questionsASecond(t *testing.T, db *sql.DB) float64 {
	t.Helper()
	begun, before := time.Now(), questions(t, db)
	time.Sleep(4 * time.Second)
	return float64(questions(t, db)-before-1) / time.Since(begun).Seconds()
}

// A ping reads no tickets of others.
func TestPingBesideManyTickets(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db, other, prefix := connect(t, srv, ""), connect(t, srv, ""), newPrefix()
		db.SetMaxOpenConns(1) // all statements are of one session
		d, err := mysql.New(db, mysql.WithPrefix(prefix))
		must(t, err)
		defer d.Close()
		reads := func() (sum int) {
			rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
			must(t, err)
			defer rows.Close()
			for rows.Next() {
				var name string
				var n int
				must(t, rows.Scan(&name, &n))
				sum += n
			}
			must(t, rows.Err())
			return sum
		}
		cost := func() int {
			before := reads()
			must(t, d.Ping(t.Context()))
			return reads() - before
		}
		must(t, d.Ping(t.Context())) // it creates the tables
		without := cost()
		query := "INSERT INTO " + prefix + "_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) VALUES "
		for i := range 2000 {
			query += fmt.Sprintf("('n%[1]d','n%[1]d','n%[1]d',7,0,1,'','',0,0,1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6) + INTERVAL 1 HOUR),", i)
		}
		do(t, other, query[:len(query)-1])
		if n := cost(); n > without+100 {
			t.Errorf("a ping reads %d rows, and %d beside 2000 tickets", without, n)
		} else {
			t.Log(without, n)
		}
	})
}

func TestStatementsOfACycle(t *testing.T) {
	for _, start := range []func(testing.TB, ...testbed.Option) *testbed.Server{testbed.MariaDB, testbed.MySQL} {
		t.Run("", func(t *testing.T) {
			db := connect(t, start(t), "")
			l, _, _ := fresh(t, db)
			must(t, take(t, l, "a").Release(t.Context()))
			const cycles, sweep = 100, 4 // one process in ten sweeps at once: see store.Sweep
			before := questions(t, db)
			for range cycles {
				must(t, take(t, l, "a").Release(t.Context()))
			}
			if n := questions(t, db) - before - 1; n < 2*cycles || n > 2*cycles+sweep {
				t.Errorf("%d statements for %d cycles of acquire and release, want 2 each", n, cycles)
			}
		})
	}
}

// Queues that do not move are read together.
func TestQueuesCostNoStatements(t *testing.T) {
	t.Parallel()
	db := connect(t, testbed.MariaDB(t), "")
	db.SetMaxOpenConns(8)
	holder, _, prefix := fresh(t, db)
	l, _ := join(t, db, prefix)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	const queues = 90
	for i := range queues {
		name := strconv.Itoa(i)
		take(t, holder, name)
		group.Go(func() {
			if _, err := l.Acquire(ctx, name); err == nil {
				t.Errorf("acquired %s, which is held", name)
			}
		})
		time.Sleep(7 * time.Millisecond) // each queue at its own time
	}
	time.Sleep(2 * time.Second) // the queues do not move
	rate := questionsASecond(t, db)
	t.Logf("%d queues: %.1f statements a second", queues, rate)
	if rate > 6 { // a heartbeat, a check of all queues, half a sleep, and renewals now and then
		t.Errorf("%d queues cost %.1f statements a second", queues, rate)
	}
}

func TestWaitersCostNoStatements(t *testing.T) {
	t.Parallel()
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
			queue, err := l.Inspect(t.Context(), "a")
			must(t, err)
			if len(queue.Tickets) == waiting+1 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d tickets are queued, want %d", len(queue.Tickets), waiting+1)
			}
		}
	}
	crowds := []int{10, 100}
	if testbed.All() {
		crowds = append(crowds, 1000)
	}
	for _, n := range crowds {
		wait(n - waiting)
		time.Sleep(time.Second) // the queue does not move
		rate := questionsASecond(t, db)
		t.Logf("%d waiters: %.1f statements a second", n, rate)
		if rate > 6 { // a heartbeat, a check of the queue, half a sleep, and renewals now and then
			t.Errorf("%d waiters cost %.1f statements a second", n, rate)
		}
	}
	cancel()
	group.Wait()
	must(t, k.Release(t.Context()))
}

// A hand-over between processes is one request to queue, one to release and grant, and two of the process that is woken.
func TestStatementsOfAHandOver(t *testing.T) {
	for _, start := range []func(testing.TB, ...testbed.Option) *testbed.Server{testbed.MariaDB, testbed.MySQL} {
		t.Run("", func(t *testing.T) {
			srv := start(t)
			db := connect(t, srv, "")
			_, _, prefix := fresh(t, db)
			const grants = 100 // of each
			run := func(each int) {
				var group sync.WaitGroup
				for range 2 {
					l, _ := join(t, connect(t, srv, ""), prefix)
					group.Go(func() {
						for range each {
							k, err := l.Acquire(t.Context(), "a")
							if err == nil {
								err = k.Release(context.WithoutCancel(t.Context()))
							}
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				group.Wait()
			}
			begun, before := time.Now(), questions(t, db)
			run(grants)
			n := float64(questions(t, db) - before - 1)
			// Heartbeats and checks of the queue, and what two processes need to begin.
			most := 4.5*2*grants + 60 + 20*time.Since(begun).Seconds()
			t.Logf("%.1f requests a grant", n/(2*grants))
			if n > most {
				t.Errorf("%.0f requests for %d grants, want at most %.0f", n, 2*grants, most)
			}
		})
	}
}
