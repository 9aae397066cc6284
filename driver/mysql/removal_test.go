package mysql_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// A release that comes when the lease is over, and waits for the queue while the next is granted, removes no ticket: what it has read
// of the queue counts from when it has locked the anchor.
func TestReleaseThatMeetsAGrant(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		const process = 5<<16 + 1
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		d.Waits() // it calls the procedure
		must(t, d.Ping(t.Context()))
		s := d.Store()
		_, err := s.Heartbeat(t.Context(), process, time.Hour, true)
		must(t, err)
		take := func(id string, want sqlqueue.Result) driver.Hold {
			t.Helper()
			r := driver.Request{Name: "a", ID: id, TTL: time.Hour, Wait: true}
			var a sqlqueue.Answer
			for a.Result == 0 || a.Result == sqlqueue.Late { // the first answer says which server it is
				var err error
				a, err = s.Take(t.Context(), process, r, func() int64 { return time.Now().Add(time.Hour).UnixMicro() })
				must(t, err)
			}
			if a.Result != want {
				t.Fatalf("%s: %+v", id, a)
			}
			return r.Hold(a.Token)
		}
		one := take("one", sqlqueue.Granted)
		take("two", sqlqueue.Queued)
		take("three", sqlqueue.Queued)
		tx := begin(t, db) // as a walk, which has reaped the first and grants the second
		for _, statement := range []string{
			"SELECT 1 FROM %[1]s_tickets WHERE entry = 'a' FOR UPDATE",
			"DELETE FROM %[1]s_tickets WHERE entry = 'a'",
			"UPDATE %[1]s_tickets SET entry = 'a', queued = 1, held = 1, provisional = 1, expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE id = 'two'",
		} {
			_, err := tx.ExecContext(t.Context(), fmt.Sprintf(statement, prefix))
			must(t, err)
		}
		removed := make(chan sqlqueue.Removal, 1)
		go func() {
			r, err := s.Remove(context.WithoutCancel(t.Context()), process, one)
			if err != nil {
				t.Error(err)
			}
			removed <- r
		}()
		for late := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // it waits for the anchor
			var n int
			must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%"+prefix+"_tickets% entry = %' AND id <> CONNECTION_ID()").Scan(&n))
			if n > 0 {
				break
			}
			if time.Now().After(late) {
				t.Fatal("the release does not wait")
			}
		}
		must(t, tx.Commit())
		if r := <-removed; r.Found {
			t.Error("it is said to have been held")
		}
		queue, err := d.Inspect(t.Context(), "a")
		must(t, err)
		if len(queue) != 2 || queue[0].ID != "two" || !queue[0].Held || queue[1].Held {
			t.Errorf("the queue is %+v", queue)
		}
	})
}
