package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// The tickets of two crashed processes are queued in two queues in opposite orders: both queues are reaped at
// once without a deadlock.
func TestReapInOppositeOrders(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ok(t, d.Ping(t.Context())) // makes the tables
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := p.Exec(t.Context(), fmt.Sprintf(sql, prefix), args...)
		ok(t, err)
	}
	exec(`INSERT INTO %s_processes VALUES (1, 1, now() - interval '1 s'), (2, 1, now() - interval '1 s')`)
	for i, w := range []struct {
		name    string
		process int
	}{{"x", 1}, {"x", 2}, {"y", 2}, {"y", 1}} {
		exec(`INSERT INTO %s_tickets VALUES ($1, $2, $2, $3, $4, true, false, false, false, 1, 1, now(), NULL, '', '')`,
			[]byte(w.name), i+1, fmt.Sprint("id", i), w.process)
	}
	exec(`CREATE FUNCTION %[1]s_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN OLD; END $$`)
	exec(`CREATE TRIGGER slow AFTER DELETE ON %[1]s_processes FOR EACH ROW EXECUTE FUNCTION %[1]s_slow()`)
	var group sync.WaitGroup
	for _, name := range []string{"x", "y"} {
		group.Go(func() {
			began := time.Now()
			_, err := p.Exec(t.Context(), fmt.Sprintf("SELECT %s_advance%s($1, 0)", prefix, postgres.Version), []byte(name))
			if err != nil {
				t.Errorf("%s: after %v: %v", name, time.Since(began), err)
			}
		})
	}
	group.Wait()
	for _, name := range []string{"x", "y"} { // the next request reaps what was in use
		exec("SELECT %s_advance"+postgres.Version+"($1, 0)", []byte(name))
	}
	if n := countTickets(t, p, prefix); n != 0 {
		t.Errorf("%d tickets are left", n)
	}
}

// A renewal that began in time, and waited for the row until the lease was over, does not revive the lease. Nor
// does a repeated request for the ticket.
func TestLeaseThatEndsWhileARenewalWaits(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(d *postgres.Driver, r driver.Request, g driver.Grant) error{
		"renew": func(d *postgres.Driver, r driver.Request, g driver.Grant) error {
			return d.Renew(t.Context(), r.Hold(g.Token), time.Minute)
		},
		"acquire again": func(d *postgres.Driver, r driver.Request, g driver.Grant) error {
			r.TTL = time.Minute
			again, err := d.Acquire(t.Context(), r)
			if err == nil && again.Token != g.Token {
				err = driver.ErrLost // another ticket: the lease was not revived
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			prefix := unique()
			d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
			r := driver.Request{Name: "warm", ID: "warm", TTL: time.Minute}
			_, err := d.Acquire(t.Context(), r)
			ok(t, err)
			r = driver.Request{Name: "a", ID: "one", TTL: 400 * time.Millisecond}
			g, err := d.Acquire(t.Context(), r)
			ok(t, err)
			tx := begin(t, p)
			_, err = tx.Exec(t.Context(), "SELECT FROM "+prefix+"_tickets WHERE name = 'a' FOR UPDATE")
			ok(t, err)
			done := make(chan error, 1)
			go func() { done <- ask(d, r, g) }()
			time.Sleep(600 * time.Millisecond)
			ok(t, tx.Rollback(t.Context()))
			is(t, <-done, driver.ErrLost)
		})
	}
}

// The tickets of a crashed holder, on a name that nobody uses again, and of a crashed waiter after a live holder
// are removed by any process that has the driver open, even if it does nothing else.
func TestExpiredTicketsAreRemoved(t *testing.T) {
	t.Parallel()
	d, p, prefix := newDriverOfOne(t)
	if by := d.SweepPeriod(); by > time.Minute-10*time.Second { // D18 allows a minute
		t.Errorf("by default the driver sweeps after up to %v", by)
	}
	d.SweepEvery(2 * time.Second)
	expiredTicketsAreRemoved(t, d, p, prefix, 10*time.Second)
}

func TestExpiredTicketsAreRemovedInTime(t *testing.T) {
	testbed.Nightly(t, "it takes a minute: run it after a change to when the driver sweeps")
	t.Parallel()
	d, p, prefix := newDriverOfOne(t)
	expiredTicketsAreRemoved(t, d, p, prefix, time.Minute)
}

// newDriverOfOne makes a driver on tables of its own.
func newDriverOfOne(t *testing.T) (d *postgres.Driver, p *pgxpool.Pool, prefix string) {
	t.Helper()
	prefix = unique()
	d, p = newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	return d, p, prefix
}

func expiredTicketsAreRemoved(t *testing.T, d *postgres.Driver, p *pgxpool.Pool, prefix string, within time.Duration) {
	t.Helper()
	_, err := d.Acquire(t.Context(), driver.Request{Name: "held", ID: "held", TTL: time.Hour})
	ok(t, err)
	_, err = p.Exec(t.Context(), "INSERT INTO "+prefix+"_processes VALUES (1, 1, now())")
	ok(t, err)
	_, err = p.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %[1]s_tickets SELECT 'held', n, n, 'waits', 1, true, false, false, false, 1, 1, now(), NULL, '', ''
		FROM nextval('%[1]s_token') n`, prefix))
	ok(t, err)
	crashed := driver.Request{Name: "crashed", ID: "crashed", TTL: time.Second}
	_, err = d.Acquire(t.Context(), crashed)
	ok(t, err)
	until := time.Now().Add(d.Bounds(crashed.TTL).Crash + within)
	for countTickets(t, p, prefix) > 1 {
		if time.Now().After(until) {
			t.Fatal("the ticket of a lease that is over was not removed in time")
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// A walk that waits for the lock of a row has read the others before. A lease and the life of a process that are renewed
// meanwhile, and were over otherwise, go on.
func TestRenewedWhileAWalkWaits(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ok(t, d.Ping(t.Context())) // makes the tables
	exec := func(sql string) {
		t.Helper()
		_, err := p.Exec(t.Context(), strings.ReplaceAll(sql, "%s", prefix))
		ok(t, err)
	}
	exec(`INSERT INTO %s_processes VALUES (1, 1, now() + interval '1 hour'), (2, 1, clock_timestamp() + interval '1 second')`)
	exec(`INSERT INTO %s_tickets SELECT 'a', token, token, token::text, process, true, held, false, true, 9, 3600000000, now(),
		CASE WHEN held THEN clock_timestamp() + interval '1 second' END, '', ''
		FROM (VALUES (1, 1, false), (2, 2, false), (3, 1, true)) AS t(token, process, held)`)
	tx := begin(t, p)
	_, err := tx.Exec(t.Context(), "SELECT FROM "+prefix+"_tickets WHERE slot = 1 FOR UPDATE")
	ok(t, err)
	walked := make(chan error, 1)
	go func() {
		_, err := d.Store().Advance(t.Context(), 1, "a")
		walked <- err
	}()
	time.Sleep(500 * time.Millisecond)
	exec(`UPDATE %s_tickets SET expires_at = now() + interval '1 hour' WHERE slot = 3`)
	exec(`UPDATE %s_processes SET alive_until = now() + interval '1 hour' WHERE id = 2`)
	time.Sleep(600 * time.Millisecond)
	ok(t, tx.Rollback(t.Context()))
	ok(t, <-walked)
	var left int
	ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_tickets").Scan(&left))
	if left != 3 {
		t.Errorf("%d of 3 tickets are left", left)
	}
}
