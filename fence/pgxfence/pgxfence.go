// Package pgxfence fences data in PostgreSQL through pgx: it refuses a holder that
// has lost its lock, as package [github.com/lockerproject/locker/fence] explains.
//
//	fences, err := pgxfence.New("locker_fences")
//	…
//	err = pgxfence.Do(ctx, pool, fences, lock, func(tx pgx.Tx) error {
//		var items int
//		if err := tx.QueryRow(ctx, "SELECT items FROM stock WHERE id = 42").Scan(&items); err != nil {
//			return err
//		}
//		…
//		_, err := tx.Exec(ctx, "UPDATE stock SET items = $1 WHERE id = 42", items-1)
//		return err
//	})
//
// It is package sqlfence for another client, with the same promises and the same
// limits: programs of both may share a table.
//
// If the lock is in the same database, a *postgres.Driver with the lock's schema
// and prefix is a stricter [Guard]: it needs no table, and refuses a caller that
// does not hold the lock at that moment. It need not be the Driver that the lock
// was acquired with: one of New(pool) serves a lock that was opened by URL.
package pgxfence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/internal/fencesql"
)

// Guard ties a transaction to a lock: after it has returned nil, the statements of tx
// cannot be interleaved with those of another holder of the lock. A *[Table] is
// one, a *postgres.Driver a stricter one.
type Guard interface {
	Guard(ctx context.Context, tx pgx.Tx, lock fence.Lock) error
}

// Do begins a transaction, guards it, runs fn in it and commits it. It is for reads
// as well as for writes: fn's writes must not depend on an earlier read, unless that
// was under Do with the same lock.
//
// An error that wraps fence.ErrStale means that the lock was lost and that fn
// did not run. An error of fn rolls the transaction back and is returned as it
// is. Any other error is the database's. If it came from the commit, the
// transaction may have been committed: read again, with Do, to find out.
//
// db is a *pgxpool.Pool or a *pgx.Conn, whose default isolation is used; for another
// one, begin the transaction yourself and call Guard first.
func Do(ctx context.Context, db interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}, g Guard, lock fence.Lock, fn func(tx pgx.Tx) error,
) error {
	members, err := fence.Members(lock)
	if err == nil && (db == nil || g == nil || fn == nil) {
		err = fmt.Errorf("pgxfence: %w: want a database, a guard and a function", locker.ErrInvalidOption)
	}
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, k := range members {
			err := g.Guard(ctx, tx, k)
			if errors.Is(err, locker.ErrLost) { // the driver's guard
				err = fmt.Errorf("%w: %w", fence.ErrStale, err)
			}
			if err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

// Table is a [Guard] that compares tokens, and keeps the greatest of each name in a
// table of the database that it guards. Programs that guard the same data use
// the same table. All methods may be called from many goroutines at once.
type Table struct {
	sql fencesql.Statements
}

// New returns the table of that name, which may have a schema before a dot. It does
// not create it: see [Table.Schema].
func New(table string) (*Table, error) {
	s, err := fencesql.Postgres(table)
	if err != nil {
		return nil, err
	}
	return &Table{sql: s}, nil
}

// Schema returns the statement that creates the table if it is missing. It begins
// and ends no transaction.
func (t *Table) Schema() string { return t.sql.Schema }

// Guard is Do for a transaction that the caller begins, commits and rolls back.
// Call it before tx reads anything: only later reads are guarded. On an error roll
// tx back. If the token is smaller than the fence, the error is a
// *fence.StaleError.
func (t *Table) Guard(ctx context.Context, tx pgx.Tx, lock fence.Lock) error {
	members, err := fence.Members(lock)
	if err == nil && tx == nil {
		err = fmt.Errorf("pgxfence: %w: no transaction", locker.ErrInvalidOption)
	}
	if err != nil {
		return err
	}
	for _, k := range members {
		var greatest int64
		err := tx.QueryRow(ctx, t.sql.Raise, []byte(k.Name()), int64(k.Token())).Scan(&greatest) //nolint:gosec // Members has checked it
		if err != nil {
			return fmt.Errorf("pgxfence: guard a transaction by %q: %w", k.Name(), err)
		}
		if seen := uint64(greatest); seen != k.Token() { //nolint:gosec // tokens are positive
			return &fence.StaleError{Name: k.Name(), Token: k.Token(), Seen: seen}
		}
	}
	return nil
}
