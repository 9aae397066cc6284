package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql
	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/sqlfence"
	"github.com/lockerproject/locker/stripe"
)

// fenced is a stock in a row of PostgreSQL, behind a guard that compares tokens.
type fenced struct {
	db     *sql.DB
	table  string
	guard  *sqlfence.Table
	sold   atomic.Int64
	left   int  // when all is over
	banned bool // whether a holder that had lost the lock was refused
}

// sellFenced sells pieces under a lock and behind the guard, in tables that it
// creates and drops.
func sellFenced(ctx context.Context, address, name string) (f *fenced, err error) {
	f = &fenced{table: "stock_" + strings.ToLower(rand.Text())}
	if f.guard, err = sqlfence.New(sqlfence.Postgres, f.table+"_fences"); err != nil {
		return nil, err
	}
	if f.db, err = openDB(address); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.drop(context.WithoutCancel(ctx)), f.db.Close()) }()
	create := fmt.Sprintf("CREATE TABLE %s AS SELECT %d AS items; %s", f.table, pieces, f.guard.Schema())
	if _, err := f.db.ExecContext(ctx, create); err != nil {
		return nil, err
	}
	var group errgroup.Group
	for range shops {
		group.Go(func() error { return f.shop(ctx, address, name) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := f.sellLate(ctx, address, name); err != nil {
		return nil, err
	}
	return f, f.db.QueryRowContext(ctx, "SELECT items FROM "+f.table).Scan(&f.left)
}

func (f *fenced) shop(ctx context.Context, address, name string) error {
	l, err := locker.Open(ctx, address)
	if err != nil {
		return err
	}
	defer l.Close()
	return serve(func() error {
		return locker.Do(ctx, l, name, func(ctx context.Context) error {
			lock, _ := locker.FromContext(ctx)
			return f.sell(ctx, lock)
		})
	})
}

func (f *fenced) sell(ctx context.Context, lock fence.Lock) error {
	err := sqlfence.Do(ctx, f.db, f.guard, lock, func(tx *sql.Tx) error {
		var left int
		if err := tx.QueryRowContext(ctx, "SELECT items FROM "+f.table).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			return stripe.ErrEmpty
		}
		_, err := tx.ExecContext(ctx, "UPDATE "+f.table+" SET items = $1", left-1)
		return err
	})
	if err == nil {
		f.sold.Add(1)
	}
	return err
}

// sellLate sells under a lock that is not held any more, after another holder
// was there.
func (f *fenced) sellLate(ctx context.Context, address, name string) error {
	l, err := locker.Open(ctx, address)
	if err != nil {
		return err
	}
	defer l.Close()
	lost, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	if err := lost.Release(ctx); err != nil {
		return err
	}
	err = locker.Do(ctx, l, name, func(ctx context.Context) error {
		lock, _ := locker.FromContext(ctx)
		return sqlfence.Do(ctx, f.db, f.guard, lock, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE "+f.table+" SET items = items + 1") // a piece comes back
			return err
		})
	})
	if err != nil {
		return err
	}
	err = f.sell(ctx, lost)
	if f.banned = errors.Is(err, fence.ErrStale); f.banned {
		return nil
	}
	return err
}

func (f *fenced) drop(ctx context.Context) error {
	_, err := f.db.ExecContext(ctx, fmt.Sprintf("DROP TABLE IF EXISTS %s, %[1]s_fences", f.table))
	return err
}

// openDB opens the database of a store's URL, whose other parameters are the
// driver's.
func openDB(address string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	for _, own := range []string{"prefix", "schema", "liveness", "listen", "create", "ttl"} {
		q.Del(own)
	}
	maps.DeleteFunc(q, func(name string, _ []string) bool { return strings.HasPrefix(name, "pool_") })
	u.RawQuery = q.Encode()
	return sql.Open("pgx", u.String())
}

func (f *fenced) String() string {
	late := "made"
	if f.banned {
		late = "refused"
	}
	return fmt.Sprintf("sold %d, oversold by %d; a late sale by a shop that had lost the lock: %s", f.sold.Load(), max(0, f.sold.Load()-pieces), late)
}
