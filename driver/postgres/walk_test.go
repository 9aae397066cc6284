package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

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
