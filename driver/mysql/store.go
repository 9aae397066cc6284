package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Error numbers, of MySQL and MariaDB alike where not said otherwise.
const (
	errDuplicate    = 1062
	errNull         = 1048
	errNoTable      = 1146
	errNoColumn     = 1054
	errTableExists  = 1050
	errRange        = 1690 // see alone
	errLockTimeout  = 1205 // on MariaDB also NOWAIT
	errDeadlock     = 1213
	errCommitUndone = 3101 // MySQL: Group Replication has undone a transaction that others were faster than
	errNowait       = 3572 // MySQL
	errNumbering    = 1467 // MariaDB: a deadlock over the lock on AUTO_INCREMENT, among other things
	errStaleRead    = 1020 // MariaDB 11.6 and later: the record has changed
	errDenied       = 1142
	errDeniedSchema = 1044
	errDeniedFor    = 1227

	// Of a server that only reads.
	errReadOnlyOption = 1290
	errReadOnlyTx     = 1792
	errReadOnlyMode   = 1836

	// Of one that ends the connection, without having done what was asked, or maybe after.
	errShutdown = 1053
	errKilled   = 1927 // MariaDB: connection was killed
	errInactive = 4031 // MySQL: the client was disconnected because of inactivity

	// Of one that can do nothing for anybody at present.
	errManyConnections     = 1040
	errManyUserConnections = 1203
	errUserResource        = 1226
	errNotReady            = 1047 // Galera: not yet prepared for use
	errDiskFull            = 1021
	errTableFull           = 1114
)

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// again tells whether the server has undone a statement that would do when it is
// sent again.
func again(err error) bool {
	switch number(err) {
	case errDeadlock, errLockTimeout, errStaleRead, errNumbering, errCommitUndone:
		return true
	}
	return false
}

// readOnly tells whether the server has refused a statement because it only reads.
func readOnly(err error) bool {
	switch number(err) {
	case errReadOnlyOption, errReadOnlyTx, errReadOnlyMode:
		return true
	}
	return false
}

// broken tells whether a connection ended before its statement was answered.
func broken(err error) bool {
	switch number(err) {
	case errKilled, errShutdown, errInactive:
		return true
	}
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn)
}

// unavailable tells whether an error means that the server did not answer, or refuses everybody.
func unavailable(err error) bool {
	switch number(err) {
	case errManyConnections, errManyUserConnections, errUserResource, errNotReady, errDiskFull, errTableFull:
		return true
	}
	var network *net.OpError
	return readOnly(err) || broken(err) || errors.As(err, &network)
}

// unanswered tells whether a statement may have been done, or may yet be, for all that is known.
func unanswered(err error) bool {
	return err != nil && (number(err) == 0 || broken(err)) && !errors.Is(err, sqldriver.ErrBadConn)
}

// exec sends a statement of its own transaction, again as long as the server
// undoes it, and makes the tables if they are not there.
func (d *Driver) exec(ctx context.Context, name string, v values) (sql.Result, error) {
	return d.execOn(ctx, ctx, d.w.render(name, v))
}

// execOn is exec on a connection that is waited for under another context.
func (d *Driver) execOn(ctx, wait context.Context, query string) (r sql.Result, err error) {
	err = d.retry(ctx, func() error {
		return d.with(wait, func(c *sql.Conn) (err error) {
			r, err = c.ExecContext(ctx, query)
			return err
		})
	})
	return r, err
}

// execWanted is exec for a statement that takes a ticket. It is not begun when its caller has gone:
// neither when there is no connection before that, nor again.
func (d *Driver) execWanted(ctx asking, name string, v values) (r sql.Result, err error) {
	query := d.w.render(name, v)
	err = d.retry(ctx, func() error {
		return d.with(ctx.caller, func(c *sql.Conn) (err error) {
			r, err = c.ExecContext(ctx, query)
			if unanswered(err) {
				d.unknownUntil(ctx.id, v.until)
			}
			return err
		})
	})
	return r, err
}

// change is exec for a statement of which the number of rows tells all.
func (d *Driver) change(ctx context.Context, name string, v values) (int64, error) {
	r, err := d.exec(ctx, name, v)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query reads rows, each with scan.
func (d *Driver) query(ctx context.Context, query string, scan func(*sql.Rows) error) error {
	return d.retry(ctx, func() error { return d.queryOnce(ctx, query, scan) })
}

func (d *Driver) queryOnce(ctx context.Context, query string, scan func(*sql.Rows) error) error {
	return d.with(ctx, func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, query)
		if err != nil {
			return unread(err)
		}
		return each(rows, scan)
	})
}

func each(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// unread lets a query whose connection ended before it was answered be asked again.
func unread(err error) error {
	if broken(err) {
		return errors.Join(sqldriver.ErrBadConn, err)
	}
	return err
}

// tokens reads a set of numbers.
func (d *Driver) tokens(ctx context.Context, name string, v values) (found map[uint64]bool, err error) {
	query := d.w.render(name, v)
	err = d.retry(ctx, func() error {
		return d.with(ctx, func(c *sql.Conn) error {
			rows, err := c.QueryContext(ctx, query)
			if err != nil {
				return unread(err)
			}
			found, err = scanTokens(rows)
			return err
		})
	})
	return found, err
}

// transaction runs f in a transaction. Its end is a statement like any other, which ctx bounds.
func (d *Driver) transaction(ctx context.Context, f func(*sql.Conn) error) error {
	return d.retry(ctx, func() error {
		return d.with(ctx, func(c *sql.Conn) error {
			if _, err := c.ExecContext(ctx, "START TRANSACTION"); err != nil {
				return err
			}
			err := f(c)
			if err == nil {
				_, err = c.ExecContext(ctx, "COMMIT")
			}
			if err != nil {
				if _, rerr := c.ExecContext(ctx, "ROLLBACK"); rerr != nil {
					giveUp(c)
				}
			}
			return err
		})
	})
}

func scanTokens(rows *sql.Rows) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	err := each(rows, func(rows *sql.Rows) error {
		var t uint64
		if err := rows.Scan(&t); err != nil {
			return err
		}
		found[t] = true
		return nil
	})
	return found, err
}

func (d *Driver) retry(ctx context.Context, do func() error) error {
	const most = 3 // times that the tables are made: somebody else may drop them
	for try := 0; ; try++ {
		made := d.made.Load() // others may make the tables while this finds that they are not there
		err := insist(ctx, do)
		switch {
		case err == nil:
			d.made.Store(true)
			return nil
		case number(err) == errRange:
			return noAutocommit(err)
		case number(err) == errNoColumn:
			if other := d.checkVersion(ctx, err); other != nil {
				return other
			}
			return err
		case number(err) != errNoTable:
			return err
		case made:
			return fmt.Errorf("%w: the table was there before: somebody has dropped it, with the tickets of all, "+
				"or the session is in another database; a driver made anew makes it again", err)
		case try == most:
			return err
		}
		if merr := d.migrate(ctx, err); merr != nil {
			return merr
		}
	}
}

func noAutocommit(err error) error {
	return fmt.Errorf("autocommit is off in a session of the database, where no lock would be committed: "+
		"put autocommit=1 into the DSN (%w)", err)
}

// insist tries again what a deadlock or a lock that another held has ended.
func insist(ctx context.Context, do func() error) error {
	for try := 0; ; try++ {
		err := do()
		if err == nil || !again(err) || ctx.Err() != nil {
			return err
		}
		// Whoever was in the way is done in a moment, and others try too.
		pause := time.Duration(1+rand.IntN(4<<min(try, 5))) * time.Millisecond
		if !sleep(ctx, pause) {
			return err
		}
	}
}

func sleep(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
