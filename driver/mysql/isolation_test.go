package mysql_test

import (
	"context"
	"errors"
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
