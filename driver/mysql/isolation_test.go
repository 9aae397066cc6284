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

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// isolated is the parameter of a DSN that sets the isolation level, in a test that onBoth runs.
func isolated(t *testing.T, level string) string {
	t.Helper()
	if strings.HasSuffix(t.Name(), "MariaDB") {
		return "?tx_isolation=%27" + level + "%27"
	}
	return "?transaction_isolation=%27" + level + "%27"
}

// Under READ UNCOMMITTED a query that sorts may find the row of a ticket, and read it after the ticket was released.
// The row stays for the queue, without a name and an ID: the ticket counts as released.
func TestReadingWhatIsBeingReleased(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		must(t, take(t, l, "a").Release(t.Context())) // makes the tables
		_, d := join(t, connect(t, srv, isolated(t, "READ-UNCOMMITTED")), prefix)
		var group sync.WaitGroup
		var token atomic.Uint64
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for what, read := range map[string]func() error{
			"inspect": func() error { _, err := d.Inspect(t.Context(), "a"); return err },
			"list":    func() error { _, err := d.List(t.Context()); return err },
			"break":   func() error { return d.Break(t.Context(), "a", token.Load()+1) },
		} {
			for range 2 {
				group.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						if err := read(); err != nil && !errors.Is(err, driver.ErrLost) {
							t.Errorf("%s, number %d: %v", what, n, err)
							return
						}
					}
				})
			}
		}
		for ctx.Err() == nil {
			r, err := db.ExecContext(t.Context(), "INSERT INTO "+prefix+"_tickets (entry, name, id, process, queued, ttl, owner, note, shared, permits, held, since, expires_at) "+
				"VALUES ('a', 'a', 'x', 1, 1, 1, '', '', 0, 0, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)")
			must(t, err)
			last, err := r.LastInsertId()
			must(t, err)
			token.Store(uint64(last)) //nolint:gosec // counts from 1
			_, err = db.ExecContext(t.Context(), "UPDATE "+prefix+"_tickets SET name = NULL, id = NULL, held = 0 WHERE entry = 'a'")
			must(t, err)
			_, err = db.ExecContext(t.Context(), "DELETE FROM "+prefix+"_tickets WHERE entry = 'a'")
			must(t, err)
		}
		group.Wait()
	})
}

// Under READ UNCOMMITTED a process that asks for its grants, since it has no connection to sleep on, is not told of one that is
// undone.
func TestGrantThatIsUndone(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, holder, prefix := fresh(t, db)
		_, err := holder.Acquire(t.Context(), request("held", false))
		must(t, err)
		few := connectTo(t, fewConnections(t, srv, 2), isolated(t, "READ-UNCOMMITTED"))
		few.SetMaxOpenConns(1)
		_, d := join(t, few, prefix)
		r := request("waiter", true)
		r.Renewed, r.Joined = true, func() {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = tx.ExecContext(t.Context(), "UPDATE "+prefix+"_tickets SET held = 1, provisional = 1, shared = 1, "+
				"expires_at = UTC_TIMESTAMP(6) + INTERVAL 4 SECOND WHERE id = 'waiter'") // as a release
			must(t, err)
			time.AfterFunc(time.Second, func() { _ = tx.Rollback() })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if g, err := d.Acquire(ctx, r); err == nil {
			t.Errorf("token %d was granted, and the lock is held", g.Token)
		}
	})
}

// Under READ UNCOMMITTED nobody sees a grant or a removal that is undone: Inspect shows the queue as it is, List its name, and Break
// waits for the row and breaks the ticket.
func TestReadsWhatIsUndone(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, holder, prefix := fresh(t, db)
		g, err := holder.Acquire(t.Context(), request("held", false))
		must(t, err)
		_, d := join(t, connect(t, srv, isolated(t, "READ-UNCOMMITTED")), prefix)
		for _, undone := range []string{"UPDATE %s_tickets SET id = 'other'", "DELETE FROM %s_tickets"} {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = tx.ExecContext(t.Context(), fmt.Sprintf(undone, prefix))
			must(t, err)
			if q, err := d.Inspect(t.Context(), "a"); err != nil || len(q) != 1 || q[0].ID != "held" {
				t.Errorf("%s: the queue is %+v (%v)", undone, q, err)
			}
			if names, err := d.List(t.Context()); err != nil || len(names) != 1 {
				t.Errorf("%s: the names are %v (%v)", undone, names, err)
			}
			must(t, tx.Rollback())
		}
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), "DELETE FROM "+prefix+"_tickets")
		must(t, err)
		time.AfterFunc(300*time.Millisecond, func() { _ = tx.Rollback() })
		if err := d.Break(t.Context(), "a", g.Token); err != nil {
			t.Errorf("break of a ticket that is there: %v", err)
		}
	})
}

// fewConnections makes an account that may have so many connections, and returns its URL.
func fewConnections(t *testing.T, srv *testbed.Server, most int) string {
	t.Helper()
	own := ownAccount(t, srv)
	do(t, connect(t, srv, ""), fmt.Sprintf("ALTER USER %s@'%%' WITH MAX_USER_CONNECTIONS %d", configOf(t, own).User, most))
	return own
}
