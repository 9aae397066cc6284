package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// sameSlot returns another name whose tickets lock the same slot.
func sameSlot(name string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("other", i); mysql.SlotOf(other) == mysql.SlotOf(name) {
			return other
		}
	}
}

// A guard in a pool that is exhausted stops neither those who want its lock, nor its renewal and release, nor other locks.
func TestGuardInAFullPoolBlocksNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		full := connect(t, srv, "")
		full.SetMaxOpenConns(1)
		l, d, prefix := fresh(t, full)
		_, direct := join(t, connect(t, srv, ""), prefix)
		k := take(t, l, "a")
		gone := take(t, l, "gone")
		must(t, gone.Release(t.Context()))
		tx, err := full.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		must(t, d.Guard(t.Context(), tx, k))
		if err := d.Guard(t.Context(), tx, gone); !errors.Is(err, driver.ErrLost) {
			t.Errorf("guarded by a lock that was released: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := direct.Acquire(ctx, driver.Request{Name: "a", ID: "try", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("try what is guarded: %v", err)
		}
		for _, name := range []string{sameSlot("a"), "gone", "b", "zz"} {
			r := driver.Request{Name: name, ID: "id-" + name, TTL: time.Minute, Wait: true}
			g, err := direct.Acquire(ctx, r)
			must(t, err)
			must(t, direct.Release(ctx, r.Hold(g.Token)))
		}
		must(t, k.Extend(ctx, time.Minute))
		must(t, k.Release(ctx))
		must(t, ctx.Err())
	})
}

// A queue whose row another transaction has locked delays no other queue of the process.
func TestLockedQueueDelaysNoOther(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		holder, _, prefix := fresh(t, db)
		waiter, _ := join(t, db, prefix)
		take(t, holder, "a", locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		b := take(t, holder, "b")
		granted := make(chan string, 2)
		var waits sync.WaitGroup
		defer waits.Wait()
		for _, name := range []string{"a", "b"} {
			waits.Go(func() {
				k, err := waiter.Acquire(context.WithoutCancel(t.Context()), name)
				granted <- name
				if err == nil {
					err = k.Release(context.Background())
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		queued(t, holder, "a", 2)
		queued(t, holder, "b", 2)
		unlock := lockOther(t, srv, "SELECT 1 FROM %s_tickets WHERE entry = 'a'", prefix)
		time.Sleep(4 * time.Second) // the lease of a is over
		must(t, b.Release(t.Context()))
		first := time.AfterFunc(10*time.Second, unlock)
		if name := <-granted; name != "b" || !first.Stop() {
			t.Errorf("%s was granted first, while the row of a was locked or after that", name)
			<-granted
			return
		}
		unlock()
		<-granted
	})
}

// While a transaction guards a lease that is over, those who wait for its end ask a few times a second.
func TestWaitersForAGuardedTransactionAskSeldom(t *testing.T) {
	t.Parallel()
	for _, start := range []func(testing.TB, ...testbed.Option) *testbed.Server{testbed.MariaDB, testbed.MySQL} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			db := connect(t, start(t), "")
			l, d, prefix := fresh(t, db)
			other, _ := join(t, db, prefix)
			k := take(t, l, "a", locker.WithTTL(time.Second), locker.WithoutRenewal())
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			must(t, d.Guard(t.Context(), tx, k))
			granted := make(chan error, 1)
			go func() {
				k, err := other.Acquire(context.WithoutCancel(t.Context()), "a")
				if err == nil {
					err = k.Release(context.Background())
				}
				granted <- err
			}()
			time.Sleep(6 * time.Second)
			n := questionsASecond(t, db)
			t.Logf("%.0f statements a second", n)
			if n > 20 {
				t.Errorf("%.0f statements a second, want at most 20", n)
			}
			must(t, tx.Commit())
			if took := testbed.Elapsed(func() { must(t, <-granted) }); took > 2*time.Second {
				t.Errorf("granted %v after the end of the transaction", took)
			}
		})
	}
}

// A sweep gets to what has expired, however many queues are in use.
func TestSweepBehindQueuesInUse(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		must(t, take(t, l, "x").Release(t.Context()))
		const queues = 700
		query := "INSERT INTO " + prefix + "_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) VALUES "
		for i := range queues {
			query += fmt.Sprintf("('q%04[1]d',NULL,NULL,7,1,1,'','',0,0,0,UTC_TIMESTAMP(6),NULL),"+
				"(CONCAT(x'ff','w%04[1]d'),'q%04[1]d','w%04[1]d',7,0,1,'','',0,0,0,UTC_TIMESTAMP(6),NULL),", i)
		}
		for i := range 3 {
			query += fmt.Sprintf("('z%[1]d','z%[1]d','z%[1]d',7,0,1,'','',0,0,1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6) - INTERVAL 10 SECOND),", i)
		}
		do(t, db, query[:len(query)-1])
		do(t, db, "INSERT INTO "+prefix+"_processes VALUES (7, 1, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 0, 0)")
		must(t, d.Sweep(t.Context()))
		if n := count(t, db, prefix+"_tickets"); n != 2*queues {
			t.Errorf("%d rows are left, want %d", n, 2*queues)
		}
	})
}

// A sweep leaves out a queue that another transaction has locked, and goes on with the next.
func TestSweepBehindALockedQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		must(t, take(t, l, "x").Release(t.Context()))
		must(t, l.Close()) // one in ten processes sweeps when it has its first ticket
		_, d := join(t, db, prefix)
		do(t, db, fmt.Sprintf("INSERT INTO %s_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) VALUES "+
			"('empty',NULL,NULL,7,1,1,'','',0,0,0,UTC_TIMESTAMP(6),NULL),"+
			"('z','z','z',7,0,1,'','',0,0,1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)", prefix))
		unlock := lockOther(t, srv, "SELECT 1 FROM %s_tickets WHERE entry = 'empty'", prefix)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		must(t, d.Sweep(ctx))
		if n := count(t, db, prefix+"_tickets WHERE entry = 'z'"); n != 0 {
			t.Error("what has expired is left")
		}
		unlock()
		must(t, d.Sweep(t.Context()))
		if n := count(t, db, prefix+"_tickets"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// One process sweeps for all: the others wait until a sweep is due.
func TestOneSweepsForAll(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		_, other := join(t, db, prefix)
		must(t, take(t, l, "x").Release(t.Context()))
		for i, left := range []int{0, 1, 0} {
			do(t, db, fmt.Sprintf("INSERT INTO %s_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) VALUES "+
				"('dead','dead','dead',7,0,1,'','',0,0,1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6) - INTERVAL 10 SECOND)", prefix))
			due := []*mysql.Driver{d, other, other}[i].SweepInTurn(t.Context())
			if n := count(t, db, prefix+"_tickets"); n != left {
				t.Errorf("%d: %d rows are left, want %d", i, n, left)
			}
			if due <= 0 || due > 45*time.Second {
				t.Errorf("%d: a sweep is due in %v", i, due)
			}
			do(t, db, "DELETE FROM "+prefix+"_tickets")
			if i == 1 { // as if it was due
				do(t, db, "UPDATE "+prefix+"_slots SET swept_until = UTC_TIMESTAMP(6)")
			}
		}
	})
}

// A turn that lies further ahead than any lasts, because the server's clock was set back, stops no sweep.
func TestSweepAfterTheClockWasSetBack(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		must(t, take(t, l, "x").Release(t.Context()))
		do(t, db, fmt.Sprintf("INSERT INTO %s_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) VALUES "+
			"('dead','dead','dead',7,0,1,'','',0,0,1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6) - INTERVAL 10 SECOND)", prefix))
		do(t, db, fmt.Sprintf("UPDATE %s_slots SET swept_until = UTC_TIMESTAMP(6) + INTERVAL 1 DAY WHERE %s = 0", prefix, mysql.SlotColumn))
		due := d.SweepInTurn(t.Context())
		if n := count(t, db, prefix+"_tickets"); n != 0 {
			t.Errorf("%d rows are left, and a sweep is due in %v", n, due)
		}
	})
}
