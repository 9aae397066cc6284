package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
)

// AcquireTx waits until no other transaction holds name, and holds it until tx ends, by commit or rollback; a rollback to
// a savepoint from before the call ends that earlier. It needs no table and writes nothing: it is a transaction-level
// advisory lock on 64 bits of a hash of the name. PostgreSQL finds deadlocks, and frees the lock with the transaction
// whatever happens. Two names with the same hash exclude each other, too.
//
// It excludes other AcquireTx of the name with the same schema and prefix in the same database, and nothing else: a lock
// of Acquire does not exclude it. It waits inside the database: if ctx ends meanwhile, the connection is closed, and
// the transaction ends with it. A lock_timeout or statement_timeout of the session ends the wait, and fails the transaction.
//
// The transaction has to be READ COMMITTED, which a database may be configured not to begin by default. Any other level
// is refused, and the transaction goes on without the lock: it would not see what the previous holder has written. So is a
// transaction on a standby, whose locks the primary does not know: the error wraps driver.ErrUnavailable.
func (d *Driver) AcquireTx(ctx context.Context, tx pgx.Tx, name string) error {
	if _, err := d.lockTx(ctx, tx, name, "pg_advisory_xact_lock(%s) IS NULL"); err != nil {
		return fmt.Errorf("postgres: acquire %q in a transaction: %w", name, err)
	}
	return nil
}

// TryAcquireTx is AcquireTx without waiting. Its error wraps driver.ErrNotAcquired if another transaction holds name.
func (d *Driver) TryAcquireTx(ctx context.Context, tx pgx.Tx, name string) error {
	ok, err := d.lockTx(ctx, tx, name, "pg_try_advisory_xact_lock(%s)")
	if err == nil && !ok {
		err = driver.ErrNotAcquired
	}
	if err != nil {
		return fmt.Errorf("postgres: try to acquire %q in a transaction: %w", name, err)
	}
	return nil
}

// lockTx takes the lock of a name for tx by a call. It makes the call only on a primary, and at an isolation level at which the next
// statement of tx sees what was committed before it. In SERIALIZABLE it does not.
func (d *Driver) lockTx(ctx context.Context, tx pgx.Tx, name, call string) (ok bool, err error) {
	var level string
	var standby bool
	var got *bool
	call = fmt.Sprintf(call, "hashtextextended(encode($1::bytea, 'hex'), $2::bigint)")
	err = tx.QueryRow(ctx, `SELECT l, s, CASE WHEN NOT s AND l IN ('read committed', 'read uncommitted') THEN `+call+` END
		FROM current_setting('transaction_isolation') AS l, pg_is_in_recovery() AS s`,
		d.s.txMode(), []byte(name), d.s.w.txSeed).Scan(&level, &standby, &got)
	switch {
	case err == nil && standby:
		err = driver.Unavailable(errReplica)
	case err == nil && got == nil:
		err = fmt.Errorf("the transaction is %s, want READ COMMITTED", strings.ToUpper(level))
	}
	return got != nil && *got, err
}

// Guard ties tx to a lock that is held under the same schema and prefix, in the same database: if it returns nil, nobody
// else is granted the lock before tx has ended, even if its lease ends meanwhile. So what tx writes is written by the
// holder, or not at all. An error that wraps driver.ErrLost says that the lock is not held any more: roll back.
//
// It locks the ticket's row FOR KEY SHARE: renewals go on, and a release ends the lease and returns, but the next
// ticket is granted only when tx has ended. End tx before the lock is released, so that the next ticket is granted at
// once. A rollback to a savepoint from before the call ends the guard.
//
// In REPEATABLE READ and SERIALIZABLE acquire the lock before the transaction's first statement, and guard soon after
// that. A serialization failure (40001) means that the snapshot of tx is older than the lock or its last renewal, as it
// always is if tx is older than the TTL. The lock may still be held.
//
// A *locker.Lock is such a lock. Package fence/pgxfence begins, guards and commits such a transaction in one call, and
// returns fence.ErrStale.
func (d *Driver) Guard(ctx context.Context, tx pgx.Tx, lock interface {
	Name() string
	Token() uint64
},
) error {
	var held bool
	token := int64(lock.Token()) //nolint:gosec // tokens are bigints
	err := tx.QueryRow(ctx, d.s.w.guard, d.s.txMode(), []byte(lock.Name()), token).Scan(&held)
	if err == nil && !held {
		err = driver.ErrLost
	}
	if err != nil {
		return fmt.Errorf("postgres: guard a transaction by %q: %w", lock.Name(), err)
	}
	return nil
}

// txMode is how statements are executed in the user's transaction, which a lost prepared statement would abort.
func (s *store) txMode() pgx.QueryExecMode {
	if s.mode == pgx.QueryExecModeSimpleProtocol {
		return s.mode
	}
	return pgx.QueryExecModeExec
}
