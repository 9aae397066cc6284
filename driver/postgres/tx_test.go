package postgres_test

import (
	"context"
	"fmt"
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

func begin(t *testing.T, p *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := p.Begin(t.Context())
	ok(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func TestAcquireTx(t *testing.T) {
	t.Parallel()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(unique()))
	other, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(unique()))
	ctx := t.Context()
	a, b := begin(t, p), begin(t, p)
	ok(t, d.AcquireTx(ctx, a, "x\x00"))
	ok(t, d.AcquireTx(ctx, a, "x\x00")) // again, in the same transaction
	is(t, d.TryAcquireTx(ctx, b, "x\x00"), driver.ErrNotAcquired)
	ok(t, d.TryAcquireTx(ctx, b, "x"))
	ok(t, other.TryAcquireTx(ctx, b, "x\x00")) // of another prefix
	l := newLocker(t, d)
	k, err := l.TryAcquire(ctx, "x\x00") // which is another lock
	ok(t, err)
	ok(t, k.Release(ctx))

	done := make(chan error, 1)
	go func() { done <- d.AcquireTx(ctx, b, "x\x00") }()
	select {
	case err := <-done:
		t.Fatalf("acquired while another transaction holds: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	ok(t, a.Rollback(ctx))
	ok(t, <-done)
	ok(t, b.Commit(ctx))
	c := begin(t, p)
	ok(t, d.TryAcquireTx(ctx, c, "x\x00"))
}

// In stricter isolation a transaction that has waited does not see what the previous holder has written.
func TestAcquireTxWantsReadCommitted(t *testing.T) {
	t.Parallel()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(unique()))
	ctx := t.Context()
	acquire := map[string]func(context.Context, pgx.Tx, string) error{"AcquireTx": d.AcquireTx, "TryAcquireTx": d.TryAcquireTx}
	for what, f := range acquire {
		for level, fits := range map[pgx.TxIsoLevel]bool{
			pgx.ReadUncommitted: true, pgx.ReadCommitted: true, pgx.RepeatableRead: false, pgx.Serializable: false,
		} {
			tx, err := p.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
			ok(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			err = f(ctx, tx, "a")
			switch {
			case fits && err != nil:
				t.Errorf("%s in %s: %v", what, level, err)
			case !fits && (err == nil || !strings.Contains(err.Error(), strings.ToUpper(string(level))) || !strings.Contains(err.Error(), "READ COMMITTED")):
				t.Errorf("%s in %s: the error is %v, want one that says what it has to be", what, level, err)
			}
			if !fits { // nothing was acquired
				other := begin(t, p)
				ok(t, d.TryAcquireTx(ctx, other, "a"))
				ok(t, other.Rollback(ctx))
			}
			ok(t, tx.Rollback(ctx))
		}
	}
}

func TestGuard(t *testing.T) {
	prefix := unique()
	d, p := newRoomyDriver(t, prefix)
	ok(t, d.Ping(t.Context())) // makes the tables
	l, renewed := newRenewing(t, d)
	ctx := t.Context()
	const ttl = time.Second // enough to guard a transaction on a busy machine

	t.Run("nobody is granted before the end of the transaction", func(t *testing.T) {
		t.Parallel()
		k, err := l.Acquire(ctx, "a", locker.WithTTL(ttl), locker.WithoutRenewal())
		ok(t, err)
		tx := begin(t, p)
		ok(t, d.Guard(ctx, tx, k))
		w := async(t, l, "a")
		select {
		case <-w:
			t.Fatal("the lease ended, and another was granted under a guarded transaction")
		case <-time.After(3 * ttl):
		}
		var next *locker.Lock
		took := testbed.Elapsed(func() {
			ok(t, tx.Commit(ctx))
			next = got(t, w)
		})
		if took > 500*time.Millisecond {
			t.Errorf("granted %v after the commit", took)
		}
		ok(t, next.Release(ctx))
	})
	t.Run("a stale holder cannot commit", func(t *testing.T) {
		t.Parallel()
		k, err := l.Acquire(ctx, "b", locker.WithTTL(ttl), locker.WithoutRenewal())
		ok(t, err)
		<-k.Done()
		next, err := l.Acquire(ctx, "b")
		ok(t, err)
		tx := begin(t, p)
		is(t, d.Guard(ctx, tx, k), driver.ErrLost)
		ok(t, d.Guard(ctx, tx, next))
		ok(t, tx.Commit(ctx))
		ok(t, next.Release(ctx))
	})
	t.Run("renewals go on, of this lock and of others", func(t *testing.T) {
		t.Parallel()
		k, err := l.Acquire(ctx, "c", locker.WithTTL(5*time.Second))
		ok(t, err)
		other, err := l.Acquire(ctx, "d", locker.WithTTL(5*time.Second), locker.Shared())
		ok(t, err)
		tx := begin(t, p)
		ok(t, d.Guard(ctx, tx, k))
		ok(t, d.Guard(ctx, tx, other))
		renewed.await(t, k, other)
		ok(t, tx.Commit(ctx))
		ok(t, k.Release(ctx))
		ok(t, other.Release(ctx))
	})
	t.Run("a waiter holds nothing", func(t *testing.T) {
		t.Parallel()
		k, err := l.Acquire(ctx, "e")
		ok(t, err)
		async := async(t, l, "e")
		queued(t, l, "e", 2)
		queue, err := l.Inspect(ctx, "e")
		ok(t, err)
		tx := begin(t, p)
		is(t, d.Guard(ctx, tx, ticket{"e", queue.Tickets[1].Token}), driver.ErrLost)
		ok(t, tx.Rollback(ctx))
		ok(t, k.Release(ctx))
		ok(t, got(t, async).Release(ctx))
	})
	t.Run("a snapshot that is too old is no loss", func(t *testing.T) {
		t.Parallel()
		tx, err := p.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
		ok(t, err)
		defer func() { _ = tx.Rollback(ctx) }()
		_, err = tx.Exec(ctx, fmt.Sprintf("SELECT count(*) FROM %s_tickets", prefix))
		ok(t, err)
		k, err := l.Acquire(ctx, "f")
		ok(t, err)
		if err := d.Guard(ctx, tx, k); err == nil || postgres.Code(err) != "40001" {
			t.Errorf("the error is %v, want a serialization failure", err)
		}
		ok(t, tx.Rollback(ctx))
		tx, err = p.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
		ok(t, err)
		ok(t, d.Guard(ctx, tx, k))
		ok(t, tx.Commit(ctx))
		ok(t, k.Release(ctx))
	})
}

type ticket struct {
	name  string
	token uint64
}

func (k ticket) Name() string  { return k.name }
func (k ticket) Token() uint64 { return k.token }
