package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A walk that grants many tickets may take as long as a heartbeat. A ticket that it grants after one has a lease of the life that this
// gave the process: otherwise little may be left of it, or nothing.
func TestLeasesOfAWalkThatTakesLong(t *testing.T) {
	t.Parallel()
	const process = 5<<16 + 1
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ok(t, d.Create(t.Context(), nil))
	s := d.Store()
	take := func(process int64, r driver.Request, want sqlqueue.Result) {
		t.Helper()
		r.Name, r.TTL = "a", time.Hour
		a, err := s.Take(t.Context(), process, r, func() int64 { return time.Now().Add(time.Hour).UnixMicro() })
		ok(t, err)
		if a.Result != want {
			t.Fatalf("%s: %+v", r.ID, a)
		}
	}
	for _, id := range []int64{process, 2 * process} {
		_, err := s.Heartbeat(t.Context(), id, 10*time.Second, true)
		ok(t, err)
	}
	take(process, driver.Request{ID: "holder"}, sqlqueue.Granted)
	take(process, driver.Request{ID: "first", Shared: true, Wait: true}, sqlqueue.Queued)
	take(2*process, driver.Request{ID: "left", Shared: true, Wait: true}, sqlqueue.Queued)
	take(process, driver.Request{ID: "second", Shared: true, Wait: true}, sqlqueue.Queued)
	_, err := p.Exec(t.Context(), "DELETE FROM "+prefix+"_tickets WHERE id = 'holder'")
	ok(t, err)
	other := begin(t, p)
	_, err = other.Exec(t.Context(), "SELECT FROM "+prefix+"_tickets WHERE id = 'first' FOR UPDATE")
	ok(t, err)
	walked := make(chan error, 1)
	go func() {
		_, err := s.Advance(context.WithoutCancel(t.Context()), process, "a")
		walked <- err
	}()
	waitFor(t, "the walk waits for the first ticket, for a while", func() bool {
		var n int
		ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%' AND query_start < clock_timestamp() - interval '100 ms'", prefix).Scan(&n))
		return n > 0
	})
	_, err = s.Heartbeat(t.Context(), process, 30*time.Minute, false)
	ok(t, err)
	ok(t, s.Leave(t.Context(), 2*process))
	ok(t, other.Rollback(t.Context()))
	ok(t, <-walked)
	m, err := s.Mine(t.Context(), process, false)
	ok(t, err)
	for _, k := range m.Tickets {
		if k.ID == "second" && k.Left < 20*time.Minute {
			t.Errorf("its lease lasts for %v", k.Left)
		}
	}
	if len(m.Tickets) != 2 {
		t.Errorf("granted: %+v", m.Tickets)
	}
	if m, err = s.Mine(t.Context(), 2*process, true); err != nil || len(m.Tickets) > 0 {
		t.Errorf("granted to a process that has left: %+v, %v", m.Tickets, err)
	}
}

// A release of a reader that comes while a writer is queued waits for that, and grants it. So does whoever finds that the reader's
// lease is over.
func TestEndOfAReaderMeetsAJoin(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"release", "end of the lease"} {
		t.Run(how, func(t *testing.T) {
			const process = 5<<16 + 1
			prefix := unique()
			d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
			ok(t, d.Create(t.Context(), nil))
			s := d.Store()
			_, err := s.Heartbeat(t.Context(), process, time.Hour, true)
			ok(t, err)
			until := func() int64 { return time.Now().Add(time.Hour).UnixMicro() }
			r := driver.Request{Name: "a", ID: "reader", TTL: time.Hour, Shared: true}
			a, err := s.Take(t.Context(), process, r, until)
			ok(t, err)
			join := begin(t, p)
			var answer string
			ok(t, join.QueryRow(t.Context(), "SELECT "+prefix+"_acquire"+postgres.Version+"('a', 'writer', $1, false, 1, 3600000000, true, '', '', $2)",
				process, until()).Scan(&answer))
			if answer[0] != 'w' {
				t.Fatalf("the writer: %s", answer)
			}
			end := func() error {
				_, err := s.Remove(context.WithoutCancel(t.Context()), process, r.Hold(a.Token))
				return err
			}
			if how != "release" {
				_, err = p.Exec(t.Context(), "UPDATE "+prefix+"_tickets SET expires_at = now() - interval '1 hour' WHERE held")
				ok(t, err)
				end = func() error {
					_, err := s.Advance(context.WithoutCancel(t.Context()), process, "a")
					return err
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- end() }()
			waitFor(t, "the request waits", func() bool {
				var n int
				ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%'", prefix).Scan(&n))
				return n > 0 || len(ended) > 0
			})
			ok(t, join.Commit(t.Context()))
			err = <-ended
			if postgres.Code(err) == "55P03" { // the machine was slow, and a release waits for a while at a time
				err = end()
			}
			ok(t, err)
			m, err := s.Mine(t.Context(), process, true)
			ok(t, err)
			if len(m.Tickets) != 1 || !m.Tickets[0].Held {
				t.Errorf("the process has %+v, want that the writer is granted", m.Tickets)
			}
		})
	}
}
