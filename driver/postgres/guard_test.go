package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// newRoomyDriver is for tests with many transactions at once: its pool has connections for all of them.
func newRoomyDriver(t *testing.T, prefix string) (*postgres.Driver, *pgxpool.Pool) {
	t.Helper()
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.MaxConns = 40 })
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	return d, p
}

// A lock is released or broken while a transaction that it guards is open: nobody has to wait for that, and
// the next ticket is granted when the transaction ends, and not before.
func TestEndOfAGuardedLock(t *testing.T) {
	d, p := newRoomyDriver(t, unique())
	l := newLocker(t, d)
	ctx := t.Context()
	const soon = 700 * time.Millisecond
	release := func(k *locker.Lock) error { return k.Release(ctx) }
	brk := func(k *locker.Lock) error { return l.Break(ctx, k.Name(), k.Token()) }
	for _, c := range []struct {
		name   string
		first  []locker.Option
		next   []locker.Option // of a waiter; nil: none
		end    func(*locker.Lock) error
		behind bool // the first has waited itself
	}{
		{"alone", nil, nil, release, false},
		{"of the first", nil, []locker.Option{}, release, false},
		{"of one who waited", nil, []locker.Option{}, release, true},
		{"to a reader", nil, []locker.Option{locker.Shared()}, release, false},
		{"of a reader", []locker.Option{locker.Shared()}, []locker.Option{}, release, false},
		{"of a reader who waited", []locker.Option{locker.Shared()}, []locker.Option{}, release, true},
		{"broken", nil, []locker.Option{}, brk, false},
		{"broken, of a reader", []locker.Option{locker.Shared()}, []locker.Option{}, brk, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			name := unique()
			var k *locker.Lock
			if c.behind {
				before, err := l.Acquire(ctx, name)
				ok(t, err)
				w := async(t, l, name, c.first...)
				queued(t, l, name, 2)
				ok(t, before.Release(ctx))
				k = got(t, w)
			} else {
				var err error
				k, err = l.Acquire(ctx, name, c.first...)
				ok(t, err)
			}
			var w <-chan *locker.Lock
			if c.next != nil {
				w = async(t, l, name, c.next...)
				queued(t, l, name, 2)
			}
			tx := begin(t, p)
			ok(t, d.Guard(ctx, tx, k))
			quick := func(what string, f func() error, want error) {
				t.Helper()
				var err error
				took := testbed.Elapsed(func() { err = f() })
				is(t, err, want)
				if took > soon {
					t.Errorf("%s took %v", what, took)
				}
			}
			done := make(chan error, 1)
			took := testbed.Elapsed(func() {
				go func() { done <- c.end(k) }()
				select {
				case err := <-done:
					ok(t, err)
				case <-time.After(10 * time.Second): // the transaction would end later
					t.Error("the end of the lock waits for the transaction")
				}
			})
			if took > soon {
				t.Errorf("the end of the lock took %v", took)
			}
			for range 3 {
				quick("to try in vain", func() error { _, err := l.TryAcquire(ctx, name); return err }, locker.ErrNotAcquired)
			}
			is(t, d.Guard(ctx, begin(t, p), k), driver.ErrLost)
			select {
			case <-w: // nil: never
				t.Fatal("another was granted under a guarded transaction")
			case <-time.After(300 * time.Millisecond):
			}
			if w == nil {
				ok(t, tx.Commit(ctx))
				next, err := l.TryAcquire(ctx, name)
				ok(t, err)
				ok(t, next.Release(ctx))
				return
			}
			var next *locker.Lock
			took = testbed.Elapsed(func() {
				ok(t, tx.Commit(ctx))
				next = got(t, w)
			})
			if took > soon {
				t.Errorf("granted %v after the commit", took)
			}
			ok(t, next.Release(ctx))
		})
	}
}

// Usually the transaction ends first: then the release removes the row.
func TestReleaseAfterGuard(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	for _, commit := range []bool{true, false} {
		for _, shared := range []bool{false, true} {
			r := driver.Request{Name: "a", ID: unique(), TTL: time.Minute, Shared: shared}
			g, err := d.Acquire(t.Context(), r)
			ok(t, err)
			tx := begin(t, p)
			ok(t, d.Guard(t.Context(), tx, ticket{"a", g.Token}))
			if commit {
				ok(t, tx.Commit(t.Context()))
			} else {
				ok(t, tx.Rollback(t.Context()))
			}
			ok(t, d.Release(t.Context(), r.Hold(g.Token)))
			if n := countTickets(t, p, prefix); n != 0 {
				t.Errorf("%d rows are left", n)
			}
			is(t, d.Release(t.Context(), r.Hold(g.Token)), driver.ErrLost)
		}
	}
}
