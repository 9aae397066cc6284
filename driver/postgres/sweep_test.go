package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// die leaves n rows of holders that have died, under names that nobody uses.
func die(t *testing.T, p *pgxpool.Pool, prefix string, n int) {
	t.Helper()
	_, err := p.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s_tickets
		SELECT convert_to('dead ' || i, 'UTF8'), 0, i, 'dead ' || i, 1, false, true, false, false, 1, 1, now(), now() - interval '10 s', '', ''
		FROM generate_series(1, %d) i`, prefix, n))
	ok(t, err)
}

func countTickets(t *testing.T, p *pgxpool.Pool, prefix string) (n int) {
	t.Helper()
	ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_tickets").Scan(&n))
	return n
}

// A sweep goes on while it finds something, and not because of what it cannot
// remove.
func TestSweepOfVeryMany(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	d.Sweep(t.Context()) // makes the tables
	die(t, p, prefix, 1000)
	tx := begin(t, p)
	_, err := tx.Exec(t.Context(), "SELECT FROM "+prefix+"_tickets WHERE token <= 150 FOR KEY SHARE") // as a guard does
	ok(t, err)
	began := time.Now()
	d.Sweep(t.Context())
	if n := countTickets(t, p, prefix); n < 150 || n > 900 {
		t.Errorf("%d rows are left while 150 are guarded", n)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a sweep with nothing to remove took %v", took)
	}
	ok(t, tx.Rollback(t.Context()))
	d.Sweep(t.Context())
	if n := countTickets(t, p, prefix); n > 0 {
		t.Errorf("%d rows are left of 1000", n)
	}
}

// Programs that live for moments sweep, too: some of them do.
func TestShortProgramsSweep(t *testing.T) {
	prefix := unique()
	first, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	first.Sweep(t.Context())
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
