package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// AcquireTx waits until no other transaction holds name, and holds it until tx
// ends, by commit or rollback; a rollback to a savepoint from before the call may
// end that earlier. It locks a row that is created for the name; rows that nobody
// locks are swept.
//
// It excludes other AcquireTx of the name with the same prefix in the same
// database, and nothing else: a lock of Acquire does not exclude it. Under REPEATABLE READ, these
// servers' default, call it before tx reads anything, because tx reads the state of its first query.
// It waits inside the database, up to innodb_lock_wait_timeout at a time, and then waits on. If ctx
// ends meanwhile, the connection is lost, and so is the transaction. A deadlock (1213) has rolled tx
// back, as every deadlock does, and under innodb_rollback_on_timeout=ON a wait that times out has, too: roll back, and
// begin again. A deadlock occurs between transactions that take several names in different
// orders and, where pools have no connection left, between several processes that wait for a name
// that is used for the first time by a transaction that rolls back.
func (d *Driver) AcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	if err := d.acquireTx(ctx, tx, name); err != nil {
		return fmt.Errorf("mysql: acquire %q in a transaction: %w", name, err)
	}
	return nil
}

func (d *Driver) acquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	if !d.createTxRow(ctx, name) {
		defer d.txTurns.enter(ctx, name, txWait)()
		d.createTxRow(ctx, name) // there may be a connection by now
	}
	for {
		_, err := tx.ExecContext(ctx, d.s.w.render("tx_lock", valuesOf(name, "")))
		if code(err) != errLockTimeout || ctx.Err() != nil {
			return err
		}
		if err := d.lasts(ctx, tx, err); err != nil {
			return err
		}
	}
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

// TryAcquireTx is AcquireTx without waiting. Its error wraps driver.ErrNotAcquired if another
// transaction holds name. If the pool has no connection left and the name has no row yet,
// transactions that take new names next to it wait for the end of tx.
func (d *Driver) TryAcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	if err := d.tryAcquireTx(ctx, tx, name); err != nil {
		return fmt.Errorf("mysql: try to acquire %q in a transaction: %w", name, err)
	}
	return nil
}

func (d *Driver) tryAcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	statement, there := "tx_try", d.createTxRow(ctx, name)
	if !there {
		statement = "tx_try_or_fail"
		defer d.txTurns.enter(ctx, name, txTryWait)() // two that find no row must not both create it
	}
	v := valuesOf(name, "")
	rows, err := tx.QueryContext(ctx, d.s.w.render(statement, v))
	found, err := scanAll(rows, err, scanOne[int])
	switch {
	case err == nil && len(found) == 0 && there:
		return driver.ErrNotAcquired
	case err == nil && len(found) == 0:
		_, err = tx.ExecContext(ctx, d.s.w.render("tx_lock", v))
	}
	switch code(err) {
	case errNowait:
		return driver.ErrNotAcquired
	case errLockTimeout:
		return cmp.Or(d.lasts(ctx, tx, err), driver.ErrNotAcquired)
	}
	return err
}

// createTxRow creates the row of a name, with another connection, before a transaction
// locks it: if transactions wait for a row that another one has inserted and rolls back,
// deadlocks end all but one of them. It reports false where the pool has no connection
// left for that, or where it did not succeed.
func (d *Driver) createTxRow(ctx context.Context, name string) bool {
	sqlqueue.StartSweeps(d.e)
	if exhausted(d.s.db.Stats()) { // the caller may have to wait for its own connection
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	v := valuesOf(name, "")
	_, err := sqlqueue.Repeat(ctx, d.e, sqlqueue.Creates, func() (none struct{}, err error) {
		found, err := query(ctx, d.s, d.s.w.render("tx_find", v), scanOne[int])
		if err == nil && len(found) == 0 {
			_, err = d.s.exec(ctx, "tx_make", v)
		}
		return none, err
	})
	return err == nil
}

// How long a transaction waits for others of this process that take the same name. They
// may wait for a lock of the caller's transaction, which the database can only see when
// the caller waits there too.
const (
	txWait    = 3 * time.Second
	txTryWait = 100 * time.Millisecond
)

// txTurns let one transaction of a process at a time lock the row of a name, or of another name with the same slot.
type txTurns [slots]chan struct{}

func newTxTurns() (t txTurns) {
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

// enter waits for the turn of a name, but at most for bound. The caller calls leave.
func (t *txTurns) enter(ctx context.Context, name string, bound time.Duration) (leave func()) {
	turn := t[slotOf(name)]
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }
	case <-ctx.Done():
		return func() {}
	}
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
	n, err := sqlqueue.Repeat(ctx, d.e, sqlqueue.Once, func() (int64, error) { return d.s.change(ctx, "guard", v) })
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
		return fmt.Errorf("mysql: guard a transaction by %q: %w", lock.Name(), err)
	}
	return nil
}
