// Package sqlfence fences data in PostgreSQL, MySQL or MariaDB through
// database/sql: it refuses a holder that has lost its lock, as package
// [github.com/lockerproject/locker/fence] explains.
//
//	fences, err := sqlfence.New(sqlfence.Postgres, "locker_fences")
//	…
//	err = sqlfence.Do(ctx, db, fences, lock, func(tx *sql.Tx) error {
//		var items int
//		if err := tx.QueryRowContext(ctx, "SELECT items FROM stock WHERE id = 42").Scan(&items); err != nil {
//			return err
//		}
//		…
//		_, err := tx.ExecContext(ctx, "UPDATE stock SET items = $1 WHERE id = 42", items-1)
//		return err
//	})
//
// # What it promises
//
// The first statement of the transaction compares the token of the lock with the
// fence, the greatest token seen, raises the fence, and locks its row until the
// transaction ends. So guarded transactions of one name run one after the other in
// the order of their tokens, in every isolation level. A token that is smaller than
// an earlier one is refused with fence.ErrStale. The lock may be on any store.
//
// If the lock is in the same MySQL or MariaDB, a *mysql.Driver with the lock's
// prefix is a stricter [Guard]: it needs no table, and refuses a caller that does
// not hold the lock at that moment. It need not be the Driver that the lock was
// acquired with: one of New(db) serves a lock that was opened by URL.
//
// # What it does not promise
//
// A holder that is paused inside a transaction keeps the row locked, and the next
// holder's transaction waits for it, as for any row: bound that by ctx, and by
// the server (idle_in_transaction_session_timeout; on MySQL the wait ends after
// innodb_lock_wait_timeout). Long work belongs between two guarded transactions,
// a reading one and a writing one.
//
// The table has one row for every name that was ever used. A row may be deleted when
// no holder from before its raised_at (in UTC on MySQL) can be alive; on PostgreSQL:
//
//	DELETE FROM locker_fences WHERE raised_at < now() - interval '30 days'
package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/internal/fencesql"
)

// Dialect is the SQL that a database speaks.
type Dialect int

// The dialects.
const (
	Postgres Dialect = iota + 1 // PostgreSQL 12 or newer
	MySQL                       // MySQL 8.0 or MariaDB 10.6, or newer
)

// Guard ties a transaction to a lock: after it has returned nil, the statements of tx
// cannot be interleaved with those of another holder of the lock. A *[Table] is
// one, a *mysql.Driver a stricter one.
type Guard interface {
	Guard(ctx context.Context, tx *sql.Tx, lock fence.Lock) error
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
// MySQL and MariaDB roll a transaction back at a deadlock, and commit it at a
// statement that changes tables. What fn executes afterwards is committed statement
// by statement, and nothing guards it: return the errors of all statements. If
// the transaction has ended inside fn, Do returns an error that says so. It finds out
// by a savepoint, which costs two requests; with a Table of PostgreSQL it needs none.
//
// db is a *sql.DB or a *sql.Conn, whose default isolation is used; for another one,
// begin the transaction yourself and call Guard first.
func Do(ctx context.Context, db interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}, g Guard, lock fence.Lock, fn func(tx *sql.Tx) error,
) error {
	members, err := fence.Members(lock)
	if err == nil && (db == nil || g == nil || fn == nil) {
		err = fmt.Errorf("sqlfence: %w: want a database, a guard and a function", locker.ErrInvalidOption)
	}
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlfence: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for _, k := range members {
		err := g.Guard(ctx, tx, k)
		if errors.Is(err, locker.ErrLost) { // a driver's guard
			err = fmt.Errorf("%w: %w", fence.ErrStale, err)
		}
		if err != nil {
			return err
		}
	}
	t, isTable := g.(*Table)
	lives := isTable && t.dialect == Postgres // PostgreSQL ends no transaction by itself: after an error it refuses all statements
	if !lives {
		if _, err := tx.ExecContext(ctx, "SAVEPOINT locker_guarded"); err != nil {
			return fmt.Errorf("sqlfence: begin: %w", err)
		}
	}
	if err := fn(tx); err != nil {
		return err
	}
	if !lives {
		if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT locker_guarded"); err != nil {
			return fmt.Errorf("sqlfence: the transaction may have ended inside the function, and what followed was not guarded then: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlfence: commit: %w", err)
	}
	return nil
}

// Table is a [Guard] that compares tokens, and keeps the greatest of each name in a
// table of the database that it guards. Programs that guard the same data use
// the same table. All methods may be called from many goroutines at once.
type Table struct {
	dialect Dialect
	raise   func(ctx context.Context, tx *sql.Tx, name []byte, token int64) (greatest int64, err error)
	sql     fencesql.Statements
}

// New returns the table of that name, which may have a schema before a dot. It does
// not create it: see [Table.Schema].
func New(d Dialect, table string) (t *Table, err error) {
	t = &Table{dialect: d}
	switch d {
	case Postgres:
		t.raise = t.raisePostgres
		t.sql, err = fencesql.Postgres(table)
	case MySQL:
		t.raise = t.raiseMySQL
		t.sql, err = fencesql.MySQL(table)
	default:
		err = fmt.Errorf("sqlfence: %w: dialect %d: want Postgres or MySQL", locker.ErrInvalidOption, d)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Schema returns the statement that creates the table if it is missing. It begins
// and ends no transaction.
func (t *Table) Schema() string { return t.sql.Schema }

// Guard is Do for a transaction that the caller begins, commits and rolls back.
// Call it before tx reads anything: only later reads are guarded. On an error roll
// tx back. If the token is smaller than the fence, the error is a
// *fence.StaleError.
func (t *Table) Guard(ctx context.Context, tx *sql.Tx, lock fence.Lock) error {
	members, err := fence.Members(lock)
	if err == nil && tx == nil {
		err = fmt.Errorf("sqlfence: %w: no transaction", locker.ErrInvalidOption)
	}
	if err != nil {
		return err
	}
	for _, k := range members {
		greatest, err := t.raise(ctx, tx, []byte(k.Name()), int64(k.Token())) //nolint:gosec // Members has checked it
		if err != nil {
			return fmt.Errorf("sqlfence: guard a transaction by %q: %w", k.Name(), err)
		}
		if seen := uint64(greatest); seen != k.Token() { //nolint:gosec // tokens are positive
			return &fence.StaleError{Name: k.Name(), Token: k.Token(), Seen: seen}
		}
	}
	return nil
}

func (t *Table) raisePostgres(ctx context.Context, tx *sql.Tx, name []byte, token int64) (greatest int64, err error) {
	err = tx.QueryRowContext(ctx, t.sql.Raise, name, token).Scan(&greatest)
	return greatest, err
}

func (t *Table) raiseMySQL(ctx context.Context, tx *sql.Tx, name []byte, token int64) (int64, error) {
	r, err := tx.ExecContext(ctx, t.sql.Raise, name, token, token)
	if err != nil {
		return 0, err
	}
	greatest, err := r.LastInsertId()
	if greatest == 0 { // the first of its name
		greatest = token
	}
	return greatest, err
}
