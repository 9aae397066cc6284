package mysql_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

const meeting = 5<<16 + 1 // a process

// takeOf asks for a ticket of a process that waits. The first answer says which server it is.
func takeOf(t *testing.T, s sqlqueue.Store, r driver.Request) sqlqueue.Answer {
	t.Helper()
	for {
		a, err := s.Take(context.WithoutCancel(t.Context()), meeting, r, func() int64 { return time.Now().Add(time.Hour).UnixMicro() })
		if err != nil || a.Result != sqlqueue.Late {
			if err != nil {
				t.Error(err)
			}
			return a
		}
	}
}

// newMeeting makes a queue of one that holds and some that wait. The statements that commit then runs are those of another request.
func newMeeting(t *testing.T, srv *testbed.Server, waits ...string) (d *mysql.Driver, prefix string, one driver.Hold, commit func(during func(), statements ...string)) {
	t.Helper()
	db := connect(t, srv, "")
	_, d, prefix = fresh(t, db)
	d.Waits() // it calls procedures
	must(t, d.Ping(t.Context()))
	_, err := d.Store().Heartbeat(t.Context(), meeting, time.Hour, true)
	must(t, err)
	r := driver.Request{Name: "a", ID: "one", TTL: time.Hour, Wait: true}
	one = r.Hold(takeOf(t, d.Store(), r).Token)
	for _, r.ID = range waits {
		if a := takeOf(t, d.Store(), r); a.Result != sqlqueue.Queued {
			t.Fatalf("%s: %+v", r.ID, a)
		}
	}
	return d, prefix, one, func(during func(), statements ...string) {
		t.Helper()
		tx := begin(t, db)
		for _, statement := range statements {
			_, err := tx.ExecContext(t.Context(), fmt.Sprintf(statement, prefix))
			must(t, err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			during()
		}()
		for late := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // it waits for the anchor
			var n int
			must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%"+prefix+"_tickets% entry = %' AND id <> CONNECTION_ID()").Scan(&n))
			if n > 0 {
				break
			}
			if time.Now().After(late) {
				t.Fatal("the request does not wait")
			}
			select {
			case <-ended:
				t.Fatal("the request did not wait")
			default:
			}
		}
		must(t, tx.Commit())
		<-ended
	}
}

// A release that comes when the lease is over, and waits for the queue while the next is granted, removes no ticket: what it has read
// of the queue counts from when it has locked the anchor.
func TestReleaseThatMeetsAGrant(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		d, _, one, commit := newMeeting(t, srv, "two", "three")
		var r sqlqueue.Removal
		commit(func() {
			var err error
			if r, err = d.Store().Remove(context.WithoutCancel(t.Context()), meeting, one); err != nil {
				t.Error(err)
			}
		}, // as a walk, which has reaped the first and grants the second
			"SELECT 1 FROM %[1]s_tickets WHERE entry = 'a' FOR UPDATE", "DELETE FROM %[1]s_tickets WHERE entry = 'a'",
			"UPDATE %[1]s_tickets SET entry = 'a', queued = 1, held = 1, provisional = 1, expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE id = 'two'")
		if r.Found {
			t.Error("it is said to have been held")
		}
		queue, err := d.Inspect(t.Context(), "a")
		must(t, err)
		if len(queue) != 2 || queue[0].ID != "two" || !queue[0].Held || queue[1].Held {
			t.Errorf("the queue is %+v", queue)
		}
	})
}

// A request for a ticket that comes while the last one is released waits for that, and is granted: nobody would grant it otherwise,
// and the next one, which would find the name free, would hold beside it.
func TestRequestThatMeetsARelease(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		d, _, _, commit := newMeeting(t, srv)
		var a sqlqueue.Answer
		commit(func() {
			a = takeOf(t, d.Store(), driver.Request{Name: "a", ID: "reader", TTL: time.Hour, Wait: true, Shared: true})
		}, "DELETE FROM %[1]s_tickets WHERE entry = 'a'")
		if a.Result != sqlqueue.Granted {
			t.Errorf("the answer is %+v", a)
		}
	})
}
