package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// die inserts n rows of crashed holders, under names that nobody uses.
func die(t *testing.T, p *pgxpool.Pool, prefix string, n int) {
	t.Helper()
	_, err := p.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s_tickets
		SELECT convert_to('dead ' || i, 'UTF8'), 0, i, 'dead ' || i, 1, false, true, false, false, 1, 1, now(), now() - interval '10 s', '', ''
		FROM generate_series(1, %d) i`, prefix, n))
	ok(t, err)
}

func sweep(t *testing.T, d *postgres.Driver) {
	t.Helper()
	_, err := d.Sweep(t.Context())
	ok(t, err)
}

func countTickets(t *testing.T, p *pgxpool.Pool, prefix string) (n int) {
	t.Helper()
	ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_tickets").Scan(&n))
	return n
}

// A sweep goes on while it finds something, and ends even if it cannot remove everything.
func TestSweepOfVeryMany(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ok(t, d.Ping(t.Context())) // makes the tables
	die(t, p, prefix, 1000)
	tx := begin(t, p)
	_, err := tx.Exec(t.Context(), "SELECT FROM "+prefix+"_tickets WHERE token <= 150 FOR KEY SHARE") // as a guard does
	ok(t, err)
	began := time.Now()
	busy, err := d.Sweep(t.Context())
	ok(t, err)
	if n := countTickets(t, p, prefix); n != 150 || busy != 150 {
		t.Errorf("%d rows are left, and %d queues are in use, while 150 are guarded", n, busy)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a sweep with nothing to remove took %v", took)
	}
	ok(t, tx.Rollback(t.Context()))
	sweep(t, d)
	if n := countTickets(t, p, prefix); n > 0 {
		t.Errorf("%d rows are left of 1000", n)
	}
}

// The waiters of a crashed process leave the queue, although a live holder is ahead of them and live waiters are
// between them.
func TestSweepOfWaitersBehindTheLiving(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	for _, shared := range []bool{false, true} {
		name := fmt.Sprint("shared ", shared)
		holder := driver.Request{Name: name, ID: unique(), TTL: time.Minute, Shared: shared}
		_, err := d.Acquire(t.Context(), holder)
		ok(t, err)
		var ids []string
		wait := func() {
			r := driver.Request{Name: name, ID: unique(), TTL: time.Minute, Wait: true}
			joined := make(chan struct{})
			r.Joined = func() { close(joined) }
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _, _ = d.Acquire(ctx, r) }()
			t.Cleanup(func() { cancel(); <-done })
			<-joined
			ids = append(ids, r.ID)
		}
		dead := func(process int) {
			_, err := p.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %[1]s_tickets SELECT $1, n, n, $2, $3, true, false, false, false, 1, 1, now(), NULL, '', ''
				FROM nextval('%[1]s_token') n`, prefix), []byte(name), unique(), process)
			ok(t, err)
		}
		_, err = p.Exec(t.Context(), "INSERT INTO "+prefix+"_processes VALUES (1, 1, now() - interval '2 s') ON CONFLICT DO NOTHING")
		ok(t, err)
		wait()
		dead(1) // of a process that has expired
		dead(2) // of one that is gone already
		wait()
		busy, err := d.Sweep(t.Context())
		for ; busy > 0; busy, err = d.Sweep(t.Context()) { // the waiters' own requests use the queue, too
			ok(t, err)
		}
		ok(t, err)
		tickets, err := d.Inspect(t.Context(), name)
		ok(t, err)
		if len(tickets) != 3 || tickets[0].ID != holder.ID || tickets[1].ID != ids[0] || tickets[2].ID != ids[1] {
			t.Errorf("%s: the queue is %+v", name, tickets)
		}
		if n := countTickets(t, p, prefix); n != 3 && !shared || n != 6 && shared {
			t.Errorf("%s: %d rows are left", name, n)
		}
	}
}

// Some of the programs that run for moments sweep, too.
func TestShortProgramsSweep(t *testing.T) {
	t.Parallel()
	prefix := unique()
	first, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ok(t, first.Ping(t.Context())) // makes the tables
	die(t, p, prefix, 300)
	programs := 0
	waitFor(t, "somebody sweeps", func() bool {
		programs++
		d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithoutListen())
		ok(t, err)
		r := driver.Request{Name: "a", ID: fmt.Sprint(programs), TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		ok(t, err)
		ok(t, d.Release(t.Context(), r.Hold(g.Token)))
		ok(t, d.Close())
		return countTickets(t, p, prefix) < 300
	})
	t.Logf("after %d programs %d rows are left", programs, countTickets(t, p, prefix))
}

// One process sweeps for all: the others wait until a sweep is due. If it crashes, another does.
func TestOneSweepsForAll(t *testing.T) {
	t.Parallel()
	d, p, prefix := newDriverOfOne(t)
	other, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	const every = 3 * time.Second
	d.SweepEvery(every)
	other.SweepEvery(every)
	ok(t, d.Ping(t.Context())) // makes the tables
	die(t, p, prefix, 10)
	d.SweepInTurn(t.Context())
	if n := countTickets(t, p, prefix); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	die(t, p, prefix, 10)
	due := other.SweepInTurn(t.Context())
	if n := countTickets(t, p, prefix); n != 10 || due <= 0 || due > every {
		t.Errorf("%d rows are left, and a sweep is due in %v", n, due)
	}
	time.Sleep(due)
	waitFor(t, "another sweeps", func() bool {
		other.SweepInTurn(t.Context())
		return countTickets(t, p, prefix) == 0
	})
}

// A turn that lies further ahead than any lasts, because the server's clock was set back, stops no sweep.
func TestSweepAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	d, p, prefix := newDriverOfOne(t)
	ok(t, d.Ping(t.Context())) // makes the tables
	d.SweepInTurn(t.Context()) // takes the turn
	_, err := p.Exec(t.Context(), "UPDATE "+prefix+"_processes SET alive_until = clock_timestamp() + interval '1 day' WHERE id = 0")
	ok(t, err)
	die(t, p, prefix, 10)
	due := d.SweepInTurn(t.Context())
	if n := countTickets(t, p, prefix); n != 0 {
		t.Errorf("%d rows are left, and a sweep is due in %v", n, due)
	}
}

// A sweep opens no connection beside an exhausted pool: it could hold up renewals, which need that one, as long as its
// statement waits for a lock.
func TestSweepLeavesTheConnectionBesideThePool(t *testing.T) {
	t.Parallel()
	prefix := unique()
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithoutListen())
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	r := driver.Request{Name: "a", ID: unique(), TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	for what, sweeps := range map[string]func(){
		"a sweep": func() { _, _ = d.Sweep(t.Context()) },
		"a turn":  func() { d.SweepInTurn(t.Context()) },
	} {
		tx := begin(t, p)
		_, err = tx.Exec(t.Context(), "LOCK TABLE "+prefix+"_processes IN SHARE MODE")
		ok(t, err)
		swept := make(chan struct{})
		go func() { defer close(swept); sweeps() }()
		time.Sleep(400 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); err != nil {
			t.Errorf("a renewal during %s: %v", what, err)
		}
		cancel()
		ok(t, tx.Rollback(t.Context()))
		<-swept
	}
}

// A process whose sweep fails does not keep the others from sweeping.
func TestSweepThatFailedIsNotDone(t *testing.T) {
	t.Parallel()
	able, p, prefix := newDriverOfOne(t)
	ok(t, able.Ping(t.Context())) // makes the tables
	die(t, p, prefix, 10)
	unable, err := postgres.New(newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["lock_timeout"] = "100ms"
	}), postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, unable.Close()) })
	tx := begin(t, p)
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+prefix+"_tickets IN ACCESS EXCLUSIVE MODE")
	ok(t, err)
	unable.SweepInTurn(t.Context()) // each try fails
	ok(t, tx.Rollback(t.Context()))
	const turn = 10 * time.Second // within which another may sweep
	due := able.SweepInTurn(t.Context())
	if n := countTickets(t, p, prefix); n != 0 && due > turn {
		t.Errorf("%d rows are left, and a sweep is due in %v", n, due)
	}
}

// A sweep leaves a queue that somebody is changing.
func TestSweepLeavesAQueueThatIsLocked(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	_, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: "one", TTL: time.Hour})
	ok(t, err)
	_, err = p.Exec(t.Context(), "UPDATE "+prefix+"_tickets SET expires_at = now() - interval '1 hour'")
	ok(t, err)
	tx := begin(t, p)
	_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock("+prefix+"_key"+postgres.Version+"('a'))")
	ok(t, err)
	for _, left := range []int64{1, 0} {
		busy, err := d.Sweep(t.Context())
		ok(t, err)
		if n := countTickets(t, p, prefix); busy != left || n != int(left) {
			t.Errorf("%d queues in use, %d tickets, want %d", busy, n, left)
		}
		ok(t, tx.Rollback(t.Context()))
		tx = begin(t, p)
	}
}
