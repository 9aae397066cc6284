package pgxfence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/internal/guardtest"
	"github.com/lockerproject/locker/fence/pgxfence"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func unique() string { return fmt.Sprintf("t%016x", rand.Uint64()) }

func newPool(t *testing.T, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(testbed.SharedPostgres(t).URL())
	must(t, err)
	c.ConnConfig.DefaultQueryExecMode = mode
	p, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func newTable(t *testing.T, p *pgxpool.Pool) *pgxfence.Table {
	t.Helper()
	f, err := pgxfence.New(unique())
	must(t, err)
	for range 2 { // it may be run again
		_, err = p.Exec(t.Context(), f.Schema())
		must(t, err)
	}
	return f
}

// number is a resource: one row of a table.
type number struct {
	p     *pgxpool.Pool
	guard pgxfence.Guard
	table string
}

func newNumber(t *testing.T, p *pgxpool.Pool, g pgxfence.Guard) *number {
	t.Helper()
	n := &number{p: p, guard: g, table: unique()}
	_, err := p.Exec(t.Context(), "CREATE TABLE "+n.table+" AS SELECT 0::bigint AS v")
	must(t, err)
	return n
}

func (n *number) Read(ctx context.Context, lock fence.Lock) (v int, err error) {
	err = pgxfence.Do(ctx, n.p, n.guard, lock, func(tx pgx.Tx) error { return n.get(ctx, tx, &v) })
	return v, err
}

func (n *number) Write(ctx context.Context, lock fence.Lock, v int) error {
	return pgxfence.Do(ctx, n.p, n.guard, lock, func(tx pgx.Tx) error { return n.set(ctx, tx, v) })
}

func (n *number) Update(ctx context.Context, lock fence.Lock, modify func(int) int) error {
	return pgxfence.Do(ctx, n.p, n.guard, lock, func(tx pgx.Tx) error {
		var v int
		if err := n.get(ctx, tx, &v); err != nil {
			return err
		}
		return n.set(ctx, tx, modify(v))
	})
}

func (n *number) Peek(ctx context.Context) (v int, err error) {
	err = n.p.QueryRow(ctx, "SELECT v FROM "+n.table).Scan(&v)
	return v, err
}

func (n *number) get(ctx context.Context, tx pgx.Tx, v *int) error {
	return tx.QueryRow(ctx, "SELECT v FROM "+n.table).Scan(v)
}

func (n *number) set(ctx context.Context, tx pgx.Tx, v int) error {
	_, err := tx.Exec(ctx, "UPDATE "+n.table+" SET v = $1", v)
	return err
}

// The locks are of the same server, from a client that the test has.
func TestTable(t *testing.T) {
	p := newPool(t, pgx.QueryExecModeCacheStatement)
	d, err := postgres.New(p, postgres.WithPrefix(unique()))
	must(t, err)
	l := locker.New(d)
	t.Cleanup(func() { must(t, l.Close()) })
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			p := newPool(t, mode)
			guardtest.Run(t, l, func(t *testing.T) guardtest.Resource { return newNumber(t, p, newTable(t, p)) })
		})
	}
}

func TestDo(t *testing.T) {
	ctx, p := t.Context(), newPool(t, pgx.QueryExecModeCacheStatement)
	n := newNumber(t, p, newTable(t, p))
	lock := fence.Token("a", 7)
	boom := errors.New("boom")
	err := pgxfence.Do(ctx, p, n.guard, lock, func(tx pgx.Tx) error {
		must(t, n.set(ctx, tx, 1))
		return boom
	})
	if err != boom { //nolint:errorlint // the very error
		t.Errorf("the error of fn became %v", err)
	}
	if v, err := n.Peek(ctx); v != 0 || err != nil {
		t.Errorf("a failed function has written %d (%v)", v, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := n.Write(ended, lock, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	for what, err := range map[string]error{
		"no database": pgxfence.Do(ctx, nil, n.guard, lock, func(pgx.Tx) error { return nil }),
		"no guard":    pgxfence.Do(ctx, p, nil, lock, func(pgx.Tx) error { return nil }),
		"no function": pgxfence.Do(ctx, p, n.guard, lock, nil),
		"no tx":       n.guard.Guard(ctx, nil, lock),
	} {
		if !errors.Is(err, locker.ErrInvalidOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := pgxfence.New("a.b.c"); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("a bad table: %v", err)
	}
}

// The guard of the driver, on a lock that was opened by URL: a holder is refused as
// soon as it does not hold the lock, though nobody came after it; and as nobody is
// granted the lock before the transaction has ended, its reads need no guard.
func TestDriversGuard(t *testing.T) {
	ctx, prefix, p := t.Context(), unique(), newPool(t, pgx.QueryExecModeCacheStatement)
	u := testbed.SharedPostgres(t).URL()
	mark := "?"
	for _, c := range u {
		if c == '?' {
			mark = "&"
		}
	}
	l, err := locker.Open(ctx, u+mark+"prefix="+prefix)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	g, err := postgres.New(p, postgres.WithPrefix(prefix))
	must(t, err)
	t.Cleanup(func() { must(t, g.Close()) })

	n := newNumber(t, p, g)
	group, err := locker.AcquireAll(ctx, l, []string{"a", "b"})
	must(t, err)
	must(t, n.Write(ctx, group, 5))
	must(t, l.Break(ctx, "a", group.Locks()[0].Token()))
	err = n.Write(ctx, group, 6)
	if !errors.Is(err, fence.ErrStale) || !errors.Is(err, locker.ErrLost) {
		t.Errorf("the error is %v", err)
	}
	if v, err := n.Peek(ctx); v != 5 || err != nil {
		t.Errorf("the value is %d, %v", v, err)
	}
	_ = group.Release(ctx)
}
