package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/fence"
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

// While a transaction guards a lease that is over, those who wait for its end ask a few times a second.
func TestWaitersForAGuardedTransactionAskSeldom(t *testing.T) {
	t.Parallel()
	prefix := unique()
	var statements atomic.Int64
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = counting{&statements} })
	d, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	other, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, other.Close()) })
	r := driver.Request{Name: "a", ID: "guarded", TTL: time.Second}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	tx := begin(t, p)
	ok(t, d.Guard(t.Context(), tx, fence.Token("a", g.Token)))
	granted := make(chan error, 1)
	go func() {
		_, err := other.Acquire(context.WithoutCancel(t.Context()), driver.Request{Name: "a", ID: "next", TTL: time.Minute, Wait: true})
		granted <- err
	}()
	time.Sleep(6 * time.Second)
	before := statements.Load()
	time.Sleep(4 * time.Second)
	if n := statements.Load() - before; n > 60 {
		t.Errorf("%d statements in 4 s, want 60 at most", n)
	}
	ok(t, tx.Commit(t.Context()))
	if took := testbed.Elapsed(func() { ok(t, <-granted) }); took > 2*time.Second {
		t.Errorf("granted %v after the end of the transaction", took)
	}
}

// counting counts statements.
type counting struct{ n *atomic.Int64 }

func (c counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A lease that is shortened ends then, for those who wait too, and is not made longer.
func TestShortenedLease(t *testing.T) {
	t.Parallel()
	for _, opt := range []postgres.Option{nil, postgres.WithoutListen()} {
		for _, shared := range []bool{false, true} {
			prefix := unique()
			d, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix), opt)
			other, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix), opt)
			r := driver.Request{Name: "a", ID: "short", TTL: time.Minute, MinHold: time.Second, Shared: shared}
			g, err := d.Acquire(t.Context(), r)
			ok(t, err)
			joined, granted := make(chan struct{}), make(chan error, 1)
			next := driver.Request{Name: "a", ID: "next", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }}
			go func() {
				_, err := other.Acquire(context.WithoutCancel(t.Context()), next)
				granted <- err
			}()
			<-joined
			is(t, d.Shorten(t.Context(), next.Hold(0), time.Second), driver.ErrLost)
			const left = 2 * time.Second
			begun := time.Now()
			ok(t, d.Shorten(t.Context(), r.Hold(g.Token), left))
			ok(t, d.Shorten(t.Context(), r.Hold(g.Token), time.Minute))
			took := testbed.Elapsed(func() { ok(t, <-granted) })
			if kept := time.Since(begun); kept < left {
				t.Errorf("granted after %v, want %v", kept, left)
			}
			if bound := driver.BoundsOf(d, left).Crash; took > bound {
				t.Errorf("granted after %v, want %v at most", took, bound)
			}
			is(t, d.Shorten(t.Context(), r.Hold(g.Token), time.Second), driver.ErrLost)
		}
	}
}

// A lease that is shortened ends in time for waiters that get no notifications, however long their liveness is.
func TestShortenedLeaseWithoutNotification(t *testing.T) {
	t.Parallel()
	prefix, url := unique(), testbed.SharedPostgres(t).URL()
	d, _ := newDriver(t, url, postgres.WithPrefix(prefix))
	other, _ := newDriver(t, url, postgres.WithPrefix(prefix), postgres.WithoutListen(), postgres.WithLiveness(40*time.Second))
	r := driver.Request{Name: "a", ID: "short", TTL: time.Minute, MinHold: time.Second}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	joined, granted := make(chan struct{}), make(chan error, 1)
	next := driver.Request{Name: "a", ID: "next", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }}
	go func() {
		_, err := other.Acquire(context.WithoutCancel(t.Context()), next)
		granted <- err
	}()
	<-joined
	time.Sleep(500 * time.Millisecond) // meanwhile other has checked the queue
	const left = time.Second
	took := testbed.Elapsed(func() {
		ok(t, d.Shorten(t.Context(), r.Hold(g.Token), left))
		ok(t, <-granted)
	})
	if bound := driver.BoundsOf(other, left).Crash + 500*time.Millisecond; took > bound { // the machine may be busy
		t.Errorf("granted after %v, want %v at most", took, bound)
	}
}
