package mysql_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// behind waits in the queue of a name. Its result waits for the grant.
func behind(t *testing.T, group *sync.WaitGroup, d driver.Driver, r driver.Request) (granted func()) {
	t.Helper()
	joined := make(chan struct{})
	got := make(chan struct{})
	r.TTL, r.Wait, r.Joined = time.Minute, true, sync.OnceFunc(func() { close(joined) })
	group.Go(func() {
		defer close(got)
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Errorf("acquire %s: %v", r.Name, err)
			return
		}
		if err := d.Release(context.WithoutCancel(t.Context()), r.Hold(g.Token)); err != nil {
			t.Errorf("release %s: %v", r.Name, err)
		}
	})
	select {
	case <-joined:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s is not queued", r.ID)
	}
	return func() {
		t.Helper()
		select {
		case <-got:
		case <-time.After(20 * time.Second):
			t.Errorf("%s was not granted %s", r.ID, r.Name)
		}
	}
}

// Those that want a name, and others of its slot, wait for the slot one after the other. A release does not wait behind them.
func TestReleaseWaitsForNoSlot(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		_, other := join(t, db, prefix)
		var group sync.WaitGroup
		defer group.Wait()
		k := take(t, l, "a")
		granted := behind(t, &group, other, driver.Request{Name: "a", ID: "waiter"})
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		lockRow(t, tx, fmt.Sprintf("SELECT %s FROM %s_slots WHERE %[1]s = %[3]d FOR UPDATE", mysql.SlotColumn, prefix, mysql.SlotOf("a")))
		must(t, k.Release(t.Context()))
		granted()
	})
}

// A request that waits for something in a queue does not hold up the heartbeats of its process.
func TestQueueingLocksNoProcess(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		_, other := join(t, db, prefix)
		var group sync.WaitGroup
		defer group.Wait()
		a, b := take(t, l, "a"), take(t, l, "b")
		first := behind(t, &group, other, driver.Request{Name: "a", ID: "first"})
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "INSERT INTO "+prefix+"_tickets (entry, process, queued, held, shared, permits, ttl, since, owner, note) "+
			"VALUES (x'ff7365636f6e64', 0, 0, 0, 0, 0, 0, UTC_TIMESTAMP(6), '', '')") // where the ticket will be
		must(t, err)
		queued := make(chan func(), 1)
		group.Go(func() { queued <- behind(t, &group, other, driver.Request{Name: "b", ID: "second"}) })
		blocked(t, db)
		var free int
		must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM (SELECT id FROM "+prefix+"_processes FOR UPDATE SKIP LOCKED) AS x").Scan(&free))
		must(t, tx.Rollback())
		if free != 1 {
			t.Errorf("%d rows of processes can be locked, want that of the one that waits", free)
		}
		second := <-queued
		must(t, a.Release(t.Context()))
		must(t, b.Release(t.Context()))
		first()
		second()
	})
}

// Many processes are woken at the same time, and go to sleep again. Whoever wakes one waits for none of them: on MariaDB an
// interrupted SLEEP took seconds then.
func TestManyAreWoken(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		_, _, prefix := fresh(t, connect(t, srv, ""))
		const names, cycles = 12, 25
		var group sync.WaitGroup
		var longest atomic.Int64
		for i := range 2 * names {
			l, _ := join(t, connect(t, srv, ""), prefix)
			group.Go(func() {
				for range cycles {
					k, err := l.Acquire(t.Context(), fmt.Sprint(i%names))
					if err != nil {
						t.Error(err)
						return
					}
					begun := time.Now()
					if err := k.Release(context.WithoutCancel(t.Context())); err != nil {
						t.Error(err)
					}
					longest.Store(max(longest.Load(), int64(time.Since(begun))))
				}
			})
		}
		group.Wait()
		t.Logf("the longest release took %v", time.Duration(longest.Load()))
		if time.Duration(longest.Load()) > 1500*time.Millisecond {
			t.Errorf("a release took %v", time.Duration(longest.Load()))
		}
	})
}
