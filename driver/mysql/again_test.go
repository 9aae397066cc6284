package mysql_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// A request is repeated after its ticket has expired, and all that is ahead of it expires while the queue is walked. It is granted, or
// queued where somebody grants it: behind a ticket, or an anchor.
func TestAllExpiresWhileARequestIsRepeated(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		const first, second, third = meeting + 1, meeting + 2, meeting + 3
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		must(t, d.Ping(t.Context()))
		s := d.Store()
		for _, process := range []int64{meeting, first, second, third} {
			_, err := s.Heartbeat(t.Context(), process, time.Hour, true)
			must(t, err)
		}
		takeFor := func(process int64, r driver.Request, want sqlqueue.Result) {
			t.Helper()
			r.Name = "a"
			var a sqlqueue.Answer
			for a.Result == 0 || a.Result == sqlqueue.Late { // the first answer says which server it is
				var err error
				a, err = s.Take(t.Context(), process, r, func() int64 { return time.Now().Add(time.Hour).UnixMicro() })
				must(t, err)
			}
			if a.Result != want {
				t.Errorf("%s: %+v, want %v", r.ID, a, want)
			}
		}
		r := driver.Request{ID: "anchor", TTL: time.Hour, Shared: true}
		takeFor(meeting, r, sqlqueue.Granted)
		r.ID = "reader"
		takeFor(meeting, r, sqlqueue.Granted)
		_, err := s.Remove(t.Context(), meeting, driver.Hold{Name: "a", ID: "anchor"}) // the walk would keep the end of its lease
		must(t, err)
		r = driver.Request{ID: "gone", TTL: time.Hour, Wait: true}
		takeFor(first, r, sqlqueue.Queued)
		r.ID = "writer"
		takeFor(second, r, sqlqueue.Queued)
		r.ID = "again"
		takeFor(third, r, sqlqueue.Queued)
		expire := func(process int64) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), "UPDATE "+prefix+"_processes SET alive_until = '2001-01-01' WHERE id = ?", process)
			must(t, err)
		}
		expire(first)
		expire(third)
		unlock := lockOther(t, srv, "SELECT 1 FROM %s_processes WHERE id = %d", prefix, int64(first))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if a := takeOf(t, s, driver.Request{Name: "a", ID: "again", TTL: time.Hour, Wait: true}); a.Result != sqlqueue.Queued {
				t.Errorf("asked again: %+v", a)
			}
		}()
		for late := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // the walk waits
			var n int
			must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DELETE FROM%"+prefix+"_processes%'").Scan(&n))
			if n > 0 {
				break
			}
			if time.Now().After(late) {
				t.Fatal("the walk does not wait")
			}
		}
		expire(second)
		_, err = db.ExecContext(t.Context(), "UPDATE "+prefix+"_tickets SET expires_at = '2001-01-01' WHERE entry = x'ff726561646572'")
		must(t, err)
		unlock()
		<-ended
		var anchors int
		must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+prefix+"_tickets WHERE entry = 'a'").Scan(&anchors))
		if anchors != 1 {
			t.Error("the queue has no anchor")
		}
		takeFor(meeting, driver.Request{ID: "next", TTL: time.Hour}, sqlqueue.Refused)
	})
}
