package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Error numbers, of MySQL and MariaDB alike where not said otherwise.
const (
	errDuplicate    = 1062
	errNull         = 1048
	errNoTable      = 1146
	errNoColumn     = 1054
	errRange        = 1690 // see alone
	errLockTimeout  = 1205 // on MariaDB also NOWAIT
	errDeadlock     = 1213
	errNowait       = 3572 // MySQL
	errNumbering    = 1467 // MariaDB: a deadlock over the lock on AUTO_INCREMENT, among other things
	errStaleRead    = 1020 // MariaDB 11.6 and later: the record has changed
	errKilled       = 1927 // MariaDB: connection was killed
	errShutdown     = 1053
	errDenied       = 1142
	errDeniedSchema = 1044
	errDeniedFor    = 1227
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
	case errDeadlock, errLockTimeout, errStaleRead, errNumbering:
		return true
	}
	return false
}

// broken tells whether a connection ended before its statement was answered.
func broken(err error) bool {
	switch number(err) {
	case errKilled, errShutdown:
		return true
	}
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn)
}

// exec sends a statement of its own transaction, again as long as the server
// undoes it, and makes the tables if they are not there.
func (d *Driver) exec(ctx context.Context, name string, v values) (sql.Result, error) {
	query := d.w.render(name, v)
	var r sql.Result
	err := d.retry(ctx, func() (err error) {
		r, err = d.db.ExecContext(ctx, query)
		return err
	})
	return r, err
}

// execWanted is exec for a statement that is not begun when its caller has gone:
// neither when there is no connection before that, nor again.
func (d *Driver) execWanted(ctx asking, name string, v values) (sql.Result, error) {
	query := d.w.render(name, v)
	var r sql.Result
	err := d.retry(ctx, func() (err error) {
		for range staleMost {
			if r, err = d.execOnce(ctx, query); !errors.Is(err, sqldriver.ErrBadConn) {
				break
			}
		}
		return err
	})
	return r, err
}

// staleMost is how many connections of a pool may have ended unnoticed. On one of
// those nothing was sent.
const staleMost = 100

func (d *Driver) execOnce(ctx asking, query string) (sql.Result, error) {
	conn, err := d.db.Conn(ctx.caller)
	if err != nil {
		return nil, err
	}
	defer conn.Close() // gives it back
	return conn.ExecContext(ctx, query)
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
	return d.retry(ctx, func() error {
		rows, err := d.db.QueryContext(ctx, query)
		if broken(err) { // nothing was read yet
			rows, err = d.db.QueryContext(ctx, query)
		}
		if err != nil {
			return err
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

// tokens reads a set of numbers.
func (d *Driver) tokens(ctx context.Context, name string, v values) (map[uint64]bool, error) {
	var found map[uint64]bool
	query := d.w.render(name, v)
	err := d.retry(ctx, func() error {
		rows, err := d.db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		found, err = scanTokens(rows)
		return err
	})
	return found, err
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
		err := insist(ctx, do)
		switch {
		case number(err) == errRange:
			return noAutocommit(err)
		case number(err) == errNoColumn:
			return fmt.Errorf("%w: %s has an earlier layout: stop all who use these tables and drop them, or choose another prefix", err, d.w.tickets)
		case number(err) != errNoTable || try == most:
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

// migrate makes the tables, which missing says are not there.
func (d *Driver) migrate(ctx context.Context, missing error) error {
	if !d.opts.create {
		return fmt.Errorf("%w; the driver may not create it (WithoutCreate): run what Schema returns", missing)
	}
	select {
	case d.migrating <- struct{}{}:
		defer func() { <-d.migrating }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	conn, err := d.db.Conn(ctx) // one, in which autocommit is known to be on
	if err != nil {
		return err
	}
	defer conn.Close() // gives it back
	if _, err := conn.ExecContext(ctx, d.w.render("clock", values{})); err != nil {
		if number(err) == errRange {
			err = noAutocommit(err)
		}
		return err
	}
	for _, s := range strings.Split(d.w.schema(), ";\n") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		err := insist(ctx, func() error { // others may be making them, too
			_, err := conn.ExecContext(ctx, s)
			return err
		})
		switch number(err) {
		case errDenied, errDeniedSchema, errDeniedFor:
			return fmt.Errorf("%w: the tables are not there and this user may not create them: run what Schema returns", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
