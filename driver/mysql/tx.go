package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// AcquireTx waits until no other transaction holds name, and holds it until tx
// ends, by commit or rollback; a rollback to a savepoint from before the call may
// end that earlier. It locks a row that is created for the name, with another connection; rows that nobody
// locks are swept. If there is no further connection, tx inserts the row. A name has 512 bytes at most.
//
// It excludes other AcquireTx of the name with the same prefix in the same
// database, and nothing else: a lock of Acquire does not exclude it. Under REPEATABLE READ, these
// servers' default, call it before tx reads anything, because tx reads the state of its first query.
// It waits inside the database, up to innodb_lock_wait_timeout at a time, and then waits on. If ctx
// ends meanwhile, the connection is lost, and so is the transaction. A deadlock (1213) has rolled tx
// back, as every deadlock does, and under innodb_rollback_on_timeout=ON a wait that times out has, too: roll back, and
// begin again. A deadlock occurs between transactions that take several names in different orders.
func (d *Driver) AcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := d.createTxRow(ctx, name)
	var down error
	if d.s.Class(err)&sqlqueue.Down != 0 { // there may be no more connections: tx makes it
		down, err = err, nil
	}
	backoff := retry.Backoff{First: 5 * time.Millisecond, Most: 250 * time.Millisecond} // a lock wait may last for 0 s
	for err == nil {
		_, err = tx.ExecContext(ctx, d.s.w.render("tx_lock", valuesOf(name, "")))
		if code(err) != errLockTimeout {
			break
		}
		if err = d.lasts(ctx, tx, err); err == nil && !retry.Sleep(ctx, backoff.Next(), nil) {
			err = context.Cause(ctx)
		}
	}
	if code(err) == errNoTable {
		err = errors.Join(err, down)
	}
	if err != nil {
		return fmt.Errorf("mysql: acquire %q in a transaction: %w", name, d.marked(err))
	}
	return nil
}

// lasts returns nil if tx goes on after a lock wait that timed out. Otherwise the server has rolled it back, and would
// execute and commit each further statement by itself.
func (d *Driver) lasts(ctx context.Context, tx *sql.Tx, timeout error) error {
	rows, err := tx.QueryContext(ctx, d.s.w.render("tx_rolls_back", nil))
	rollsBack, err := scanAll(rows, err, scanOne[bool])
	if err != nil {
		return errors.Join(timeout, err)
	}
	if rollsBack[0] {
		return fmt.Errorf("the server has rolled back the transaction, as innodb_rollback_on_timeout asks: %w", timeout)
	}
	return nil
}

// TryAcquireTx is AcquireTx without waiting for another transaction. Its error wraps driver.ErrNotAcquired if one
// holds name. On MySQL it may wait, up to innodb_lock_wait_timeout, for one that takes the name just after its row was swept.
// On both servers a try under REPEATABLE READ or SERIALIZABLE that finds nothing, because the row of its name was swept just then, keeps
// other names that have no row from getting one until its transaction ends: whoever wants one of these waits for it.
func (d *Driver) TryAcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	got, err := d.createTxRow(ctx, name) // false: a transaction has made the row, and has not ended
	if err == nil && got {
		if got, err = d.tryTx(ctx, tx, name); err == nil && !got {
			got, err = d.tryTxAgain(ctx, tx, name)
		}
	}
	if err == nil && !got {
		err = driver.ErrNotAcquired
	}
	if err != nil {
		return fmt.Errorf("mysql: try to acquire %q in a transaction: %w", name, d.marked(err))
	}
	return nil
}

func (d *Driver) tryTx(ctx context.Context, tx *sql.Tx, name string) (got bool, err error) {
	rows, err := tx.QueryContext(ctx, d.s.w.render("tx_try", valuesOf(name, "")))
	found, err := scanAll(rows, err, scanOne[int])
	return len(found) > 0, err
}

// tryTxAgain tries again after a sweep that may have locked the row of a name, or removed it since it was found. If it was removed, tx
// makes it: a gap that tx has locked would keep others from that.
func (d *Driver) tryTxAgain(ctx context.Context, tx *sql.Tx, name string) (got bool, err error) {
	v := valuesOf(name, "")
	forTx := sqlqueue.ForTx(ctx)
	there, err := sqlqueue.Repeat(forTx, d.e, sqlqueue.Twice, func() (there bool, err error) {
		err = d.s.send(forTx, func(ctx context.Context, c *sql.Conn) error {
			_, err := ask(ctx, c, d.s.w.render("tx_swept", v))
			if err == nil {
				there, err = ask(ctx, c, d.s.w.render("tx_find", v))
			}
			return err
		})
		return there, err
	})
	switch {
	case err != nil:
		return false, err
	case there:
		return d.tryTx(ctx, tx, name)
	}
	if _, err = tx.ExecContext(ctx, d.s.w.render("tx_insert", v)); code(err) == errLockTimeout { // another transaction was faster
		return false, d.lasts(ctx, tx, err)
	}
	return err == nil, err
}

// ask reports whether a query finds a row.
func ask(ctx context.Context, c *sql.Conn, query string) (found bool, err error) {
	rows, err := c.QueryContext(ctx, query)
	all, err := scanAll(rows, err, scanOne[int])
	return len(all) > 0, err
}

// marked returns the error of a statement of a transaction as those of requests are returned.
func (d *Driver) marked(err error) error {
	if d.s.Class(err)&sqlqueue.Down != 0 {
		return driver.Unavailable(explain(err))
	}
	return err
}

// longestName is that of the tables' columns.
const longestName = 512

// createTxRow creates the row of a name, with another connection, before a transaction
// locks it: if transactions wait for a row that another one has inserted and rolls back,
// deadlocks end all but one of them. It waits for no transaction: it reports false if one has inserted the row and has not ended,
// as those of earlier versions do in an exhausted pool. The database sees a deadlock only if the caller's transaction waits itself.
func (d *Driver) createTxRow(ctx context.Context, name string) (there bool, err error) {
	if len(name) > longestName {
		return false, fmt.Errorf("a name of %d bytes: want %d at most", len(name), longestName)
	}
	sqlqueue.StartSweeps(d.e)
	v := valuesOf(name, "")
	ctx = sqlqueue.ForTx(ctx)
	return sqlqueue.Repeat(ctx, d.e, sqlqueue.Creates, func() (there bool, err error) {
		err = d.s.send(ctx, func(ctx context.Context, c *sql.Conn) error {
			if there, err = ask(ctx, c, d.s.w.render("tx_find", v)); err != nil || there {
				return err
			}
			switch there, err = ask(ctx, c, d.s.w.render("tx_free", v)); {
			case isOneOf(err, errLockTimeout, errNowait):
				return nil
			case err != nil || there:
				return err
			}
			_, err = c.ExecContext(ctx, d.s.w.render("tx_make", v))
			there = err == nil
			return err
		})
		return there, err
	})
}

// Guard ties tx to a lock that is held under the same prefix, in the same
// database: when it returns nil, nobody else is granted the lock before tx has
// ended, even if its lease ends meanwhile. So what tx writes is written by the
// holder, or not at all. An error that wraps driver.ErrLost says that the lock is
// not held any more: roll back. A rollback to a savepoint from before the call may
// end the guard.
//
// It locks the ticket's entry of an index in share mode: renewals go on, a release ends
// the lease at once, and the next grant waits for the end of tx. It needs a second connection for a moment: if all of
// the pool are in use, it opens one after 200 ms.
//
// A *locker.Lock is such a lock. Package fence/sqlfence begins, guards and commits such a
// transaction in one call, and returns fence.ErrStale.
func (d *Driver) Guard(ctx context.Context, tx *sql.Tx, lock interface {
	Name() string
	Token() uint64
},
) error {
	v := values{"name": lock.Name(), "token": lock.Token()}
	// Mark it with another connection: tx would lock the whole row, and so whoever wants the name, or another of its slot.
	n, err := sqlqueue.Repeat(ctx, d.e, sqlqueue.Once, func() (n int64, err error) {
		n, _, err = d.s.exec(ctx, "guard", v)
		return n, err
	})
	held := n > 0
	if err == nil && held {
		var locked []uint64
		rows, qerr := tx.QueryContext(ctx, d.s.w.render("guard_lock", v))
		locked, err = scanAll(rows, qerr, scanOne[uint64])
		held = len(locked) > 0
	}
	if err == nil && !held {
		err = driver.ErrLost
	}
	if err != nil {
		return fmt.Errorf("mysql: guard a transaction by %q: %w", lock.Name(), d.marked(err))
	}
	return nil
}
