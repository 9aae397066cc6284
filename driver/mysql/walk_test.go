package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// A walk that grants many tickets may take as long as a heartbeat. A ticket that it grants after one has a lease of the life that this
// gave the process: otherwise little may be left of it, or nothing.
func TestLeasesOfAWalkThatTakesLong(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		const process = 5<<16 + 1
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		must(t, d.Ping(t.Context()))
		s := d.Store()
		take := func(r driver.Request, want sqlqueue.Result) {
			t.Helper()
			r.Name, r.TTL = "a", time.Hour
			var a sqlqueue.Answer
			for a.Result == 0 || a.Result == sqlqueue.Late { // the first answer says which server it is
				var err error
				a, err = s.Take(t.Context(), process, r, func() int64 { return time.Now().Add(time.Hour).UnixMicro() })
				must(t, err)
			}
			if a.Result != want {
				t.Fatalf("%s: %+v", r.ID, a)
			}
		}
		_, err := s.Heartbeat(t.Context(), process, 10*time.Second, true)
		must(t, err)
		take(driver.Request{ID: "holder"}, sqlqueue.Granted)
		take(driver.Request{ID: "first", Shared: true, Wait: true}, sqlqueue.Queued)
		take(driver.Request{ID: "second", Shared: true, Wait: true}, sqlqueue.Queued)
		_, err = db.ExecContext(t.Context(), "UPDATE "+prefix+"_tickets SET expires_at = '2001-01-01' WHERE id = 'holder'")
		must(t, err)
		unlock := lockOther(t, srv, "SELECT 1 FROM %s_tickets WHERE entry = x'ff6669727374'", prefix)
		walked := make(chan error, 1)
		go func() {
			_, err := s.Advance(context.WithoutCancel(t.Context()), process, "a")
			walked <- err
		}()
		for late := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // the walk waits for the first ticket
			var n int
			must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE%"+prefix+"_tickets%entry = IF(shared%'").Scan(&n))
			if n > 0 {
				break
			}
			if time.Now().After(late) {
				t.Fatal("the walk does not wait")
			}
		}
		_, err = s.Heartbeat(t.Context(), process, 30*time.Minute, false)
		must(t, err)
		unlock()
		must(t, <-walked)
		m, err := s.Mine(t.Context(), process, false)
		must(t, err)
		for _, k := range m.Tickets {
			if k.ID == "second" && k.Left < 20*time.Minute {
				t.Errorf("its lease lasts for %v", k.Left)
			}
		}
		if len(m.Tickets) != 2 {
			t.Errorf("granted: %+v", m.Tickets)
		}
	})
}
