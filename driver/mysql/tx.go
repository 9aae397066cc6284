package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// AcquireTx waits until no other transaction holds name, and holds it until tx
// ends, by commit or rollback. It locks a row that is made for the name; rows
// that nobody locks are swept away.
//
// It excludes other AcquireTx of the name with the same prefix in the same
// database, and nothing else: a lock of Acquire does not see it. Under REPEATABLE
// READ, these servers' default, call it before tx reads anything: what tx sees is
// as old as its first query. It waits inside the database, up to
// innodb_lock_wait_timeout at a time, and then waits on; a ctx that ends meanwhile
// costs the connection, and so the transaction. A deadlock (1213) has rolled tx back,
// as any in it would: of transactions that take several names in different orders,
// and, where pools have no connection left, of ones of several processes that wait
// for a name that is used for the first time by one that rolls back.
func (d *Driver) AcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	if err := d.acquireTx(ctx, tx, name); err != nil {
		return fmt.Errorf("mysql: acquire %q in a transaction: %w", name, err)
	}
	return nil
}

func (d *Driver) acquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	d.sweepLater()
	if !d.makeRow(ctx, name) {
		defer d.txLines.enter(ctx, name, txQueueBound)()
		d.makeRow(ctx, name) // there may be a connection by now
	}
	for {
		_, err := tx.ExecContext(ctx, d.w.render("txenter", values{name: name}))
		if number(err) != errLockTimeout || ctx.Err() != nil {
			return err
		}
	}
}

// TryAcquireTx is AcquireTx that does not wait: driver.ErrNotAcquired says that
// another transaction holds name. Where the pool has no connection left and the name
// has no row yet, transactions that take new names next to it wait for the end of tx.
func (d *Driver) TryAcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	if err := d.tryAcquireTx(ctx, tx, name); err != nil {
		return fmt.Errorf("mysql: try to acquire %q in a transaction: %w", name, err)
	}
	return nil
}

func (d *Driver) tryAcquireTx(ctx context.Context, tx *sql.Tx, name string) error {
	d.sweepLater()
	if !d.makeRow(ctx, name) {
		defer d.txLines.enter(ctx, name, txTryBound)() // two who find no row must not both make it
	}
	v := values{name: name}
	there, err := found(tx.QueryContext(ctx, d.w.render("txtry", v)))
	if err == nil && !there { // nobody could make it, or the sweep took it
		_, err = tx.ExecContext(ctx, d.w.render("txenter", v))
	}
	if number(err) == errNowait || number(err) == errLockTimeout {
		return driver.ErrNotAcquired
	}
	return err
}

// makeRow sees to it that the row of a name is there before a transaction locks it: if
// transactions wait for one that another has made, and that one rolls back, all but one of
// them are ended by deadlocks. It is done beside the transaction. It reports
// false where the pool has no connection left for that, or it did not succeed.
func (d *Driver) makeRow(ctx context.Context, name string) bool {
	if d.full() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	v := values{name: name}
	seen := false
	err := d.query(ctx, d.w.render("txseen", v), func(*sql.Rows) error {
		seen = true
		return nil
	})
	if err == nil && !seen {
		_, err = d.exec(ctx, "txmake", v)
	}
	return err == nil
}

// full tells whether all connections of the pool are in use: to wait for one, with a
// transaction open, may be to wait for oneself.
func (d *Driver) full() bool {
	s := d.db.Stats()
	return s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}

// Guard ties tx to a lock that is held under the same prefix, in the same
// database: when it returns nil, nobody else is granted the lock before tx has
// ended, even if its lease ends meanwhile. So what tx writes is written by the
// holder, or not at all. An error that wraps driver.ErrLost says that the lock is
// not held any more: roll back.
//
// It locks the ticket's place in line in share mode: renewals go on, a release ends
// the lease at once, and the next grant waits for the end of tx. Where all connections
// of the pool are in use, it has to lock the whole row: then renewals, the release
// and whoever wants the lock wait for the end of tx, too, and if the lock is not held
// any more, even others' locks may until tx is rolled back.
//
// A *locker.Lock is such a lock. Package fence/sqlfence begins, guards and commits such
// a transaction in one call, and says fence.ErrStale.
func (d *Driver) Guard(ctx context.Context, tx *sql.Tx, lock interface {
	Name() string
	Token() uint64
},
) error {
	v := values{name: lock.Name(), token: lock.Token()}
	held, err := d.unkept(ctx, tx, v)
	if err == nil && held {
		held, err = found(tx.QueryContext(ctx, d.w.render("guard", v)))
	}
	if err == nil && !held {
		err = driver.ErrLost
	}
	if err != nil {
		return fmt.Errorf("mysql: guard a transaction by %q: %w", v.name, err)
	}
	return nil
}

// unkept sees to it that the row of a ticket is not kept for another when it is released:
// from then on it is this ticket's for as long as it has its place in line, and what
// releases it changes that place. That is done beside the transaction, which would
// lock the whole row. Where the pool has no connection left, the transaction does it.
func (d *Driver) unkept(ctx context.Context, tx *sql.Tx, v values) (held bool, err error) {
	if !d.full() {
		beside, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if n, err := d.change(beside, "knock", v); err == nil {
			return n > 0, nil
		}
	}
	v.inTx = true
	r, err := tx.ExecContext(ctx, d.w.render("knock", v))
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// found tells whether a query has found anything.
func found(rows *sql.Rows, err error) (some bool, _ error) {
	if err != nil {
		return false, err
	}
	err = each(rows, func(*sql.Rows) error {
		some = true
		return nil
	})
	return some, err
}
