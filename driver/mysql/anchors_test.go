package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// A name that is used again leaves an idle anchor, one that is used once does not. It is shown to nobody, and deleted
// when the driver is closed.
func TestIdleAnchors(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, _, prefix := fresh(t, db)
		must(t, take(t, a, "once").Release(t.Context()))
		cycle(t, a, "often")
		if n := count(t, db, prefix+"_tickets"); n != 1 {
			t.Errorf("%d rows are left, want that of often", n)
		}
		queue, err := a.Inspect(t.Context(), "often")
		must(t, err)
		names, err := a.List(t.Context())
		must(t, err)
		if len(queue.Tickets)+len(names) != 0 || count(t, db, prefix+"_queues") != 0 {
			t.Errorf("an idle anchor is shown: %+v, %q", queue.Tickets, names)
		}
		must(t, a.Close())
		if n := count(t, db, prefix+"_tickets"); n != 0 {
			t.Errorf("%d rows are left after Close", n)
		}
	})
}

// When the turns of a row are used up, tokens still grow.
func TestTurnsEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		other, _ := join(t, db, prefix)
		last := cycle(t, l, "a")
		_, err := db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s_tickets SET turn = %d", prefix, mysql.Turns-10))
		must(t, err)
		d.SetTurn("a", mysql.Turns-10)
		for i := range 40 {
			k := take(t, []*locker.Client{l, other}[i/20%2], "a")
			if k.Token() <= last {
				t.Errorf("token %d after %d", k.Token(), last)
			}
			last = k.Token()
			must(t, k.Release(t.Context()))
		}
	})
}

// The process that left an anchor idle does not take it on a replica that lacks the tokens given since.
func TestIdleAnchorIsNotTakenAfterAFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l, _, prefix := fresh(t, p.pool(t))
	other, _ := join(t, p.pool(t), prefix)
	cycle(t, l, "a")
	p.caughtUp(t)
	do(t, p.onReplica, "STOP SLAVE")
	lost := cycle(t, other, "a")
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	p.serve(p.replica)
	must(t, take(t, l, "b").Release(t.Context())) // now it knows the replica
	for range 3 {
		if token := cycle(t, l, "a"); token <= lost {
			t.Errorf("token %d after %d", token, lost)
		}
	}
}

// The anchor of a ticket that a replica brings back is not left idle: later tokens of that row were given already.
func TestAnchorFromBeforeAFailoverIsNotLeftIdle(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	_, d, prefix := fresh(t, p.pool(t))
	n := 0
	once := func(d *mysql.Driver, release bool) (driver.Request, uint64) {
		n++
		r := driver.Request{Name: "a", ID: fmt.Sprint("t-", n), TTL: time.Minute, Wait: true}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		if release {
			must(t, d.Release(t.Context(), r.Hold(g.Token)))
		}
		return r, g.Token
	}
	for range 3 {
		once(d, true)
	}
	r, before := once(d, false)
	p.caughtUp(t)
	do(t, p.onReplica, "STOP SLAVE")
	must(t, d.Release(t.Context(), r.Hold(before)))
	once(d, true)
	_, lost := once(d, true) // in the same row
	if lost/mysql.Turns != before/mysql.Turns {
		t.Fatalf("tokens %d and %d are not of one row", before, lost)
	}
	_, other := join(t, p.pool(t), prefix)
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	p.serve(p.replica)
	elsewhere := driver.Request{Name: "b", ID: "b-1", TTL: time.Minute} // now it knows the replica
	if _, err := d.Acquire(t.Context(), elsewhere); err != nil {
		t.Error(err)
	}
	must(t, ignoreLost(d.Release(t.Context(), r.Hold(before))))
	for _, d := range []*mysql.Driver{d, d, other, d} {
		_, token := once(d, true)
		if token <= lost {
			t.Errorf("token %d after %d", token, lost)
		}
		lost = token
	}
}

// An anchor is not left idle on another server than the one that gave its ticket. The first server may take over
// again, without the tokens that the other has given since, and the process would take the anchor there.
func TestAnchorIsNotLeftIdleOnAnotherServer(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l, _, prefix := fresh(t, p.pool(t))
	other, _ := join(t, p.pool(t), prefix)
	cycle(t, l, "a")
	k := take(t, l, "a")
	p.switchOver(t)
	must(t, take(t, other, "b").Release(t.Context())) // now both know the replica
	must(t, take(t, l, "b").Release(t.Context()))
	must(t, k.Release(t.Context()))
	caughtUp(t, p.onReplica, p.onPrimary)
	do(t, p.onPrimary, "STOP SLAVE")
	lost := cycle(t, other, "a")
	do(t, p.onReplica, "SET GLOBAL read_only = 1")
	do(t, p.onPrimary, "SET GLOBAL read_only = 0")
	p.serve(p.primary)
	must(t, take(t, l, "c").Release(t.Context())) // now it knows the primary again
	for range 3 {
		if token := cycle(t, l, "a"); token <= lost {
			t.Errorf("token %d after %d", token, lost)
		}
	}
}
