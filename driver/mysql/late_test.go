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

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// lockOther begins a transaction that locks the rows of a query, as a program that is not locker may.
func lockOther(t *testing.T, srv *testbed.Server, query string, args ...any) (unlock func()) {
	t.Helper()
	tx, err := connect(t, srv, "").BeginTx(context.WithoutCancel(t.Context()), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	var locked int
	must(t, tx.QueryRowContext(t.Context(), fmt.Sprintf(query, args...)+" FOR UPDATE").Scan(&locked))
	return func() { must(t, tx.Rollback()) }
}

// A renewal that has waited for a row until the lease was over does not revive it.
func TestLeaseThatEndsWhileARenewalWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		_, d, prefix := fresh(t, connect(t, srv, "?time_zone=%27%2B05%3A30%27"))
		r := driver.Request{Name: "a", ID: "late-1", TTL: 2 * time.Second}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		unlock := lockOther(t, srv, "SELECT 1 FROM %s_tickets WHERE entry = 'a'", prefix)
		renewed := make(chan error, 1)
		go func() { renewed <- d.Renew(context.WithoutCancel(t.Context()), r.Hold(g.Token), time.Minute) }()
		time.Sleep(r.TTL + 500*time.Millisecond)
		unlock()
		if err := <-renewed; !errors.Is(err, driver.ErrLost) {
			t.Errorf("a renewal that waited until after the end of the lease: %v", err)
		}
		queue, err := d.Inspect(t.Context(), "a")
		must(t, err)
		if len(queue) != 0 {
			t.Errorf("revived: %+v", queue)
		}
	})
}

// A request for a ticket that waits in the database for longer than it may be on its way takes none: its release was
// confirmed before. A process that waits for something calls a procedure, any other one sends a statement.
func TestRequestThatWaitsInTheDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		l, _ := join(t, db, prefix)
		must(t, d.Ping(t.Context()))
		lateRequests(t, srv, d, prefix)

		var group sync.WaitGroup
		defer group.Wait()
		k := take(t, l, "b")
		granted := behind(t, &group, d, driver.Request{Name: "b", ID: "waiter"})
		awaitSleep(t, db, prefix)
		lateRequests(t, srv, d, prefix)
		must(t, k.Release(t.Context()))
		granted()
	})
}

// awaitSleep waits until a process sleeps: then it calls procedures.
func awaitSleep(t *testing.T, db *sql.DB, prefix string) {
	t.Helper()
	for sleeping := 0; sleeping == 0; time.Sleep(50 * time.Millisecond) {
		must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+prefix+"_processes WHERE connection > 0").Scan(&sleeping))
	}
}

func lateRequests(t *testing.T, srv *testbed.Server, d *mysql.Driver, prefix string) {
	t.Helper()
	unlock := lockOther(t, srv, "SELECT 1 FROM %s_slots WHERE %s = %d", prefix, mysql.SlotColumn, mysql.SlotOf("a"))
	for i, wait := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		r := request(fmt.Sprint("blocked-", i), wait)
		_, err := d.Acquire(ctx, r)
		cancel()
		if err == nil || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("acquired while the slot is locked: %v", err)
		}
		must(t, ignoreLost(removeTicket(t.Context(), d, r.Hold(0))))
	}
	unlock()
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		queue, err := d.Inspect(t.Context(), "a")
		must(t, err)
		if len(queue) > 0 {
			t.Errorf("after the release was confirmed the queue is %+v", queue)
			return
		}
	}
}

// A release that grants has to wait for the row of a process, and the process of the next waiter sends heartbeats meanwhile:
// the lease counts from after the last of them, as the waiter does.
func TestGrantAfterAWait(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, holder, prefix := fresh(t, db)
		_, d := join(t, db, prefix)
		held := request("held", false)
		g, err := holder.Acquire(t.Context(), held)
		must(t, err)
		do(t, db, fmt.Sprintf("INSERT INTO %s_processes VALUES (7, 1, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 0, 0)", prefix))
		do(t, db, fmt.Sprintf("INSERT INTO %s_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since) "+
			"VALUES (CONCAT(x'ff','dead'),'a','dead',7,0,1,'','',0,0,0,UTC_TIMESTAMP(6))", prefix))
		do(t, db, fmt.Sprintf("UPDATE %s_tickets SET queued = 1 WHERE entry = 'a'", prefix))
		queued, granted := make(chan struct{}), make(chan driver.Grant, 1)
		r := request("waiter", true)
		r.TTL, r.Renewed, r.Joined = mysql.DefaultLiveness, true, func() { close(queued) }
		go func() {
			g, err := d.Acquire(context.WithoutCancel(t.Context()), r)
			if err != nil {
				t.Error(err)
			}
			granted <- g
		}()
		<-queued
		do(t, db, fmt.Sprintf("UPDATE %s_processes SET alive_until = UTC_TIMESTAMP(6) WHERE id = 7", prefix))
		unlock := lockOther(t, srv, "SELECT 1 FROM %s_processes WHERE id = 7", prefix)
		released := make(chan error, 1)
		go func() { released <- holder.Release(context.WithoutCancel(t.Context()), held.Hold(g.Token)) }()
		time.Sleep(mysql.DefaultLiveness)
		unlock()
		must(t, <-released)
		g = <-granted
		var left int64
		must(t, db.QueryRowContext(t.Context(), fmt.Sprintf(
			"SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) FROM %s_tickets WHERE id = 'waiter'", prefix)).Scan(&left))
		if over := time.Until(g.Asked.Add(r.TTL)) - time.Duration(left)*time.Microsecond; over > 0 {
			t.Errorf("the lease ends %v before its holder thinks", over)
		}
		must(t, d.Release(t.Context(), r.Hold(g.Token)))
	})
}

// A statement that max_statement_time has ended had no effect, and is sent again.
func TestStatementThatTimesOut(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMariaDB(t)
	_, d, prefix := fresh(t, connect(t, srv, "?max_statement_time=0.3"))
	must(t, d.Ping(t.Context()))
	unlock := lockOther(t, srv, "SELECT 1 FROM %s_slots WHERE %s = %d", prefix, mysql.SlotColumn, mysql.SlotOf("a"))
	acquired := make(chan error, 1)
	go func() {
		_, err := d.Acquire(context.WithoutCancel(t.Context()), request("timeout", false))
		acquired <- err
	}()
	time.Sleep(time.Second)
	unlock()
	must(t, <-acquired)
}

// A request for a ticket was not answered, and arrives when the ticket has been queued by another one and granted, before its
// process knows: that learns of the grant nevertheless.
func TestLateRequestForAGrantedTicket(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		d, direct, proxy := onProxy(t, srv)
		held, r := request("held", false), request("waiter", true)
		g, err := direct.Acquire(t.Context(), held)
		must(t, err)
		queued, granted := make(chan struct{}), make(chan driver.Grant)
		r.Renewed, r.Joined = true, func() { close(queued) }
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		go func() {
			g, err := d.Acquire(ctx, r)
			if err != nil {
				t.Error(err)
			}
			granted <- g
		}()
		<-queued
		proxy.HoldReplies(true)
		must(t, direct.Release(t.Context(), held.Hold(g.Token)))
		a, err := direct.Take(t.Context(), r, func() int64 { return time.Now().Add(time.Hour).UnixMicro() })
		must(t, err)
		if a.Result != sqlqueue.Granted {
			t.Errorf("the late request was answered by %+v", a)
		}
		proxy.Heal()
		if in := time.Until((<-granted).Asked); in > 0 {
			t.Errorf("the lease counts from a time that comes in %v", in)
		}
	})
}

// A procedure that max_statement_time has ended may have committed before that: the ticket may be there.
func TestProcedureThatTimesOut(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMariaDB(t)
	_, d, prefix := fresh(t, connect(t, srv, "?max_statement_time=3")) // longer than a process sleeps
	l, _ := join(t, connect(t, srv, ""), prefix)
	var group sync.WaitGroup
	defer group.Wait()
	k := take(t, l, "b")
	granted := behind(t, &group, d, driver.Request{Name: "b", ID: "waiter"})
	awaitSleep(t, connect(t, srv, ""), prefix)
	unlock := lockOther(t, srv, "SELECT 1 FROM %s_slots WHERE %s = %d", prefix, mysql.SlotColumn, mysql.SlotOf("a"))
	_, err := d.Acquire(t.Context(), request("timeout", true))
	unlock()
	if err == nil || errors.Is(err, driver.ErrNoTicket) || !strings.Contains(err.Error(), "max_statement_time") {
		t.Errorf("acquire: %v", err)
	}
	must(t, ignoreLost(removeTicket(t.Context(), d, request("timeout", true).Hold(0))))
	must(t, k.Release(t.Context()))
	granted()
}

// A try whose connection broke, and which was refused when it was sent again, does not say that it was refused: what
// was sent first may still arrive and take the lock.
func TestRefusedTryThatMayStillArrive(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		h, db := overHole(t, srv)
		_, d, prefix := fresh(t, db)
		_, direct := join(t, connect(t, srv, ""), prefix)
		warm := driver.Request{Name: "b", ID: "warm", TTL: time.Minute}
		g, err := d.Acquire(t.Context(), warm)
		must(t, err)
		must(t, d.Release(t.Context(), warm.Hold(g.Token)))
		held := request("held", false)
		g, err = direct.Acquire(t.Context(), held)
		must(t, err)
		h.forget()
		ctx, stop := context.WithCancel(t.Context())
		go h.breakWhenSent(ctx) // there may be several: sweeps have connections of their own
		r := request("try", false)
		_, err = d.Acquire(t.Context(), r)
		stop()
		if err == nil {
			t.Fatal("acquired what another holds")
		}
		confirmed := errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrNoTicket)
		must(t, direct.Release(t.Context(), held.Hold(g.Token)))
		h.arrive()
		time.Sleep(300 * time.Millisecond)
		queue, ierr := direct.Inspect(t.Context(), "a")
		must(t, ierr)
		if len(queue) > 0 && confirmed {
			t.Errorf("%v, and the ticket is %+v", err, queue)
		}
		if len(queue) == 0 && !confirmed && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("acquire: %v", err)
		}
		must(t, ignoreLost(removeTicket(t.Context(), d, r.Hold(0))))
	})
}

// The time until which a request may take a ticket counts from when it is sent, and not from before the wait for a
// connection: otherwise all requests are late for as long as that takes too long.
func TestTimeOfARequestCountsFromItsSending(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		db.SetMaxOpenConns(1)
		_, d, _ := fresh(t, db)
		_, err := d.Acquire(t.Context(), driver.Request{Name: "warm", ID: "warm", TTL: time.Minute})
		must(t, err)
		c, err := db.Conn(t.Context())
		must(t, err)
		defer c.Close()
		const bound = time.Minute
		sent := time.Time{}
		used, freed := make(chan struct{}), make(chan time.Time, 1)
		go func() {
			_ = d.UseConn(t.Context(), func() {
				close(used)
				time.Sleep(time.Second)
				freed <- time.Now()
			})
		}()
		<-used
		_, err = d.Take(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute}, func() int64 {
			sent = time.Now()
			return sent.Add(bound).UnixMicro()
		})
		must(t, err)
		if early := (<-freed).Sub(sent); early > 0 {
			t.Errorf("the time counts from %v before there was a connection", early)
		}
	})
}
