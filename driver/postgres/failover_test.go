package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A pair is a primary and its standby, and lockers with the addresses of both.
type pair struct {
	t                *testing.T
	primary, standby *testbed.Server
	url              string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	e := testbed.PostgresStandby(t)
	p := &pair{t: t, primary: e.Members[0], standby: e.Members[1], url: e.URL() + "&target_session_attrs=read-write"}
	p.exec(p.primary, "CREATE TABLE IF NOT EXISTS unused ()") // the primary answers
	p.until("the standby streams", "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')")
	return p
}

func (p *pair) locker() *locker.Client {
	p.t.Helper()
	l, err := locker.Open(p.t.Context(), p.url)
	ok(p.t, err)
	p.t.Cleanup(func() { _ = l.Close() })
	return l
}

func (p *pair) exec(srv *testbed.Server, sql string) {
	p.t.Helper()
	pool := newPool(p.t, srv.URL(), nil)
	defer pool.Close()
	_, err := pool.Exec(p.t.Context(), sql)
	ok(p.t, err)
}

// until waits for a condition on the primary.
func (p *pair) until(what, sql string) {
	p.t.Helper()
	pool := newPool(p.t, p.primary.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	defer pool.Close()
	waitFor(p.t, what, func() (yes bool) {
		ok(p.t, pool.QueryRow(p.t.Context(), sql).Scan(&yes))
		return yes
	})
}

// failOver ends the primary, and makes the standby the primary.
func (p *pair) failOver() {
	p.t.Helper()
	p.primary.Kill()
	p.exec(p.standby, "SELECT pg_promote(wait => true)")
}

// With synchronous replication a failover loses nothing: the holder keeps its
// lock, and the waiter gets it afterwards.
func TestFailoverKeepsLocks(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.exec(p.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	p.exec(p.primary, "SELECT pg_reload_conf()")
	p.until("the standby is synchronous", "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
	holder, waiter := p.locker(), p.locker()
	k, err := holder.Acquire(t.Context(), "a", locker.WithTTL(20*time.Second))
	ok(t, err)
	w := async(t, waiter, "a")
	queued(t, holder, "a", 2)
	p.failOver()
	ok(t, k.Err())
	ok(t, extend(t, k))
	queue, err := holder.Inspect(t.Context(), "a")
	ok(t, err)
	if len(queue.Tickets) == 0 || queue.Tickets[0].Token != k.Token() || !queue.Tickets[0].Held {
		t.Fatalf("after the failover the queue is %+v, want one that %d holds", queue.Tickets, k.Token())
	}
	ok(t, k.Release(t.Context()))
	next := got(t, w)
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	ok(t, next.Release(t.Context()))
}

// extend renews a lock. It tries again until every broken connection of the pool was noticed.
func extend(t *testing.T, k *locker.Lock) (err error) {
	t.Helper()
	for range 20 {
		if err = k.Extend(t.Context(), 20*time.Second); err == nil || errors.Is(err, locker.ErrLost) {
			return err
		}
		t.Log(err)
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// With asynchronous replication a failover loses the locks that were not replicated: their holders are
// notified, others are granted the name, and the tokens of those are still higher. Locks that were
// replicated go on.
func TestFailoverLosesWhatWasNotReplicated(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	holder, waiter := p.locker(), p.locker()
	known, err := holder.Acquire(t.Context(), "known", locker.WithTTL(20*time.Second))
	ok(t, err)
	w := async(t, waiter, "known")
	queued(t, holder, "known", 2)
	p.until("the standby has all", "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn())")
	p.standby.Kill()
	k, err := holder.Acquire(t.Context(), "a", locker.WithTTL(20*time.Second))
	ok(t, err)
	p.primary.Kill()
	p.standby.Start()
	p.failOver()
	if err := extend(t, known); err != nil {
		t.Errorf("a lock that the standby knew of: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	next, err := waiter.Acquire(ctx, "a")
	ok(t, err)
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	is(t, k.Extend(t.Context(), 20*time.Second), locker.ErrLost)
	ok(t, next.Release(t.Context()))
	ok(t, known.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
}

// A lock that a standby gives excludes nobody who asks the primary.
func TestAcquireTxOnAStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	begun := func(srv *testbed.Server) (*postgres.Driver, pgx.Tx) {
		d, pool := newDriver(t, srv.URL())
		return d, begin(t, pool)
	}
	d, tx := begun(p.primary)
	ok(t, d.AcquireTx(t.Context(), tx, "a"))
	d, tx = begun(p.standby)
	for _, acquire := range []func(context.Context, pgx.Tx, string) error{d.TryAcquireTx, d.AcquireTx} {
		err := acquire(t.Context(), tx, "a")
		is(t, err, driver.ErrUnavailable)
		if errors.Is(err, driver.ErrNotAcquired) {
			t.Error(err)
		}
	}
	p.failOver()
	ok(t, d.AcquireTx(t.Context(), tx, "a")) // the transaction goes on
}

// A standby may lag. What a process waits for is not read there: the tickets that it lacks would be lost.
func TestReadsNoTicketsOfAStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	d, _ := newDriver(t, p.primary.URL())
	ok(t, d.Ping(t.Context()))
	p.until("the standby has all", "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn())")
	d, _ = newDriver(t, p.standby.URL())
	for _, all := range []bool{false, true} {
		m, err := d.Store().Mine(t.Context(), 1, all)
		if c := d.Store().Class(err); c != sqlqueue.Undone|sqlqueue.Passing|sqlqueue.Down {
			t.Errorf("all %t: read %v: %v (%d)", all, m.Tickets, err, c)
		}
	}
	p.failOver()
	for _, all := range []bool{false, true} {
		m, err := d.Store().Mine(t.Context(), 1, all)
		if err != nil || len(m.Tickets) > 0 {
			t.Errorf("all %t, after the failover: read %v: %v", all, m.Tickets, err)
		}
	}
}

// Several hosts go to pgx, each with its own port.
func TestURLOfSeveralHosts(t *testing.T) {
	d, err := open(t.Context(), "postgres://u@h1,h2:5433/db?target_session_attrs=read-write")
	ok(t, err)
	defer d.Close()
	cc := postgres.ConnConfig(d)
	if cc.Host != "h1" || cc.Port != 5432 || cc.ValidateConnect == nil {
		t.Errorf("the first is %s:%d, validated: %v", cc.Host, cc.Port, cc.ValidateConnect != nil)
	}
	last := cc.Fallbacks[len(cc.Fallbacks)-1]
	if last.Host != "h2" || last.Port != 5433 {
		t.Errorf("the last is %s:%d", last.Host, last.Port)
	}
}
