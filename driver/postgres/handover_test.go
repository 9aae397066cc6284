package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A standoff is the queue of the name "a" with a holder and waiters that belong to no program. Other
// transactions are about to change it.
type standoff struct {
	t      *testing.T
	prefix string
	p      *pgxpool.Pool
	d      *postgres.Driver
	l      *locker.Client
	holder driver.Hold
}

func newStandoff(t *testing.T, waiters ...string) *standoff {
	t.Helper()
	s := &standoff{t: t, prefix: unique()}
	s.d, s.p = newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(s.prefix))
	s.l = newLocker(t, s.d)
	r := driver.Request{Name: "a", ID: "holder", TTL: time.Minute}
	g, err := s.d.Acquire(t.Context(), r)
	ok(t, err)
	s.holder = r.Hold(g.Token)
	s.ask(s.p, "heartbeat"+postgres.Version+"(7, 60000000, true)")
	for _, id := range waiters {
		s.join(s.p, id)
	}
	return s
}

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ask calls a function of the schema.
func (s *standoff) ask(q queryer, call string) (answer string) {
	s.t.Helper()
	ok(s.t, q.QueryRow(s.t.Context(), "SELECT "+s.prefix+"_"+call+"::text").Scan(&answer))
	return answer
}

func (s *standoff) join(q queryer, id string) {
	s.t.Helper()
	answer := s.ask(q, "acquire"+postgres.Version+"('a', '"+id+"', 7, false, 1, 60000000, true, '', '', 9000000000000000)")
	if !strings.HasPrefix(answer, "w ") {
		s.t.Fatalf("the answer to %s, who joins, is %q", id, answer)
	}
}

// begin opens a transaction, in which a request is under way.
func (s *standoff) begin() pgx.Tx {
	s.t.Helper()
	tx, err := s.p.Begin(s.t.Context())
	ok(s.t, err)
	s.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// blocked waits until a call of a function of the schema waits for a lock.
func (s *standoff) blocked(function string) {
	s.t.Helper()
	waitFor(s.t, function+" waits for a lock", func() (waits bool) {
		ok(s.t, s.p.QueryRow(s.t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '_' || $2 || '%')`, s.prefix, function+postgres.Version).Scan(&waits))
		return waits
	})
}

func (s *standoff) release(h driver.Hold) <-chan error {
	c := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
		defer cancel()
		c <- s.d.Release(ctx, h)
	}()
	return c
}

// queue checks who holds and who waits, in order.
func (s *standoff) queue(want string) {
	s.t.Helper()
	ts, err := s.d.Inspect(s.t.Context(), "a")
	ok(s.t, err)
	var ids []string
	for i, t := range ts {
		if t.Held != (i == 0) {
			s.t.Errorf("%s held: %v, at position %d", t.ID, t.Held, i)
		}
		ids = append(ids, t.ID)
	}
	if got := strings.Join(ids, " "); got != want {
		s.t.Errorf("the queue is %q, want %q", got, want)
	}
}

// While nobody waits, a release does not take the lock of the name. If a ticket is just being
// queued, the release waits for that, and then grants the ticket.
func TestReleaseMeetsAJoin(t *testing.T) {
	t.Parallel()
	s := newStandoff(t)
	tx := s.begin()
	s.join(tx, "joining")
	released := s.release(s.holder)
	s.blocked("release")
	ok(t, tx.Commit(t.Context()))
	ok(t, <-released)
	s.queue("joining")
}

// A release that sees a waiter grants its ticket, and does not wait for tickets that are just being
// queued.
func TestReleaseDoesNotWaitForAJoin(t *testing.T) {
	t.Parallel()
	s := newStandoff(t, "one", "two")
	tx := s.begin()
	s.join(tx, "joining")
	ok(t, <-s.release(s.holder))
	s.queue("one two")
	ok(t, tx.Commit(t.Context()))
	s.queue("one two joining")
	ok(t, <-s.release(driver.Hold{Name: "a", ID: "one"}))
	s.queue("two joining")
}

// The waiter that is being granted leaves at that moment: the next one is granted.
func TestReleaseMeetsACancel(t *testing.T) {
	t.Parallel()
	for name, waiters := range map[string][]string{"another waits": {"one", "two"}, "nobody else": {"one"}} {
		t.Run(name, func(t *testing.T) {
			s := newStandoff(t, waiters...)
			tx := s.begin()
			if answer := s.ask(tx, "release"+postgres.Version+"('a', 'one', 7)"); answer != "r" {
				t.Fatalf("the answer to who leaves is %q", answer)
			}
			released := s.release(s.holder)
			s.blocked("release")
			ok(t, tx.Commit(t.Context()))
			ok(t, <-released)
			s.queue(strings.Join(waiters[1:], " "))
		})
	}
}

// A waiter that is leaving is granted at that moment: it leaves all the same.
func TestCancelMeetsARelease(t *testing.T) {
	t.Parallel()
	s := newStandoff(t, "one", "two")
	tx := s.begin()
	if answer := s.ask(tx, "release"+postgres.Version+"('a', 'holder', 7)"); !strings.HasPrefix(answer, "r\ng one ") {
		t.Fatalf("the answer to the release is %q", answer)
	}
	left := s.release(driver.Hold{Name: "a", ID: "one"})
	s.blocked("release")
	ok(t, tx.Commit(t.Context()))
	ok(t, <-left)
	s.queue("two")
}

// A waiter that is being granted sends its request again at that moment: it still has one ticket.
func TestAskedAgainMeetsARelease(t *testing.T) {
	t.Parallel()
	s := newStandoff(t, "one", "two")
	tx := s.begin()
	s.ask(tx, "release"+postgres.Version+"('a', 'holder', 7)")
	again := make(chan struct{})
	go func() {
		defer close(again)
		var answer string
		if err := s.p.QueryRow(s.t.Context(), "SELECT "+s.prefix+"_acquire"+postgres.Version+"('a', 'one', 7, false, 1, 60000000, true, '', '', 9000000000000000)").
			Scan(&answer); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-again:
	case <-time.After(200 * time.Millisecond): // it may wait, and need not
	}
	ok(t, tx.Commit(t.Context()))
	<-again
	s.queue("one two")
}

// The release of a holder whose lease is over grants the next, too, and says that the lock was lost.
func TestReleaseTooLate(t *testing.T) {
	t.Parallel()
	s := newStandoff(t, "one")
	_, err := s.p.Exec(t.Context(), "UPDATE "+s.prefix+"_tickets SET expires_at = clock_timestamp() WHERE id = 'holder'")
	ok(t, err)
	is(t, <-s.release(s.holder), driver.ErrLost)
	s.queue("one")
	is(t, <-s.release(s.holder), driver.ErrLost)
	s.queue("one")
}
