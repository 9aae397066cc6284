package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// exec sends a statement, which is its own transaction. It is sent again as long as the
// server rolls it back, and after the tables were created if they were missing.
func (d *Driver) exec(ctx context.Context, name string, v values) (sql.Result, error) {
	return d.execText(ctx, d.w.render(name, v))
}

func (d *Driver) execText(ctx context.Context, text string) (r sql.Result, err error) {
	err = d.retry(ctx, func() error {
		return d.with(ctx, func(c *sql.Conn) (err error) {
			r, err = c.ExecContext(ctx, text)
			return err
		})
	})
	return r, err
}

// change is exec for a statement of which only the number of changed rows matters.
func (d *Driver) change(ctx context.Context, name string, v values) (int64, error) {
	r, err := d.exec(ctx, name, v)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query reads the rows of a query.
func query[T any](ctx context.Context, d *Driver, text string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = d.retry(ctx, func() error {
		all, err = queryOnce(ctx, d, text, scan)
		return err
	})
	return all, err
}

// look is query for a request that changes nothing: where there are no tables yet it finds nothing, and creates none.
func look[T any](ctx context.Context, d *Driver, text string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	if d.opts.create && !d.created.Load() {
		err := retryRolledBack(ctx, func() (err error) {
			all, err = queryOnce(ctx, d, text, scan)
			return err
		})
		if err == nil {
			d.created.Store(true)
			return all, nil
		}
		if code(err) == errNoTable {
			tables, err := queryOnce(ctx, d, d.w.render("schema", values{}), scanOne[string])
			if err == nil && len(tables) == 0 {
				return nil, nil
			}
		}
	}
	return query(ctx, d, text, scan)
}

func queryOnce[T any](ctx context.Context, d *Driver, text string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = d.with(ctx, func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, text)
		if broken(err) { // a query may be sent again
			return errors.Join(sqldriver.ErrBadConn, err)
		}
		all, err = scanAll(rows, err, scan)
		return err
	})
	return all, err
}

// scanAll reads the rows that a query returned.
func scanAll[T any](rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) (all []T, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		x, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, rows.Err()
}

// scanOne reads a row of one column.
func scanOne[T any](rows *sql.Rows) (x T, err error) {
	err = rows.Scan(&x)
	return x, err
}

// tokens reads a list of tokens, and sorts it.
func (d *Driver) tokens(ctx context.Context, name string, v values) ([]uint64, error) {
	all, err := query(ctx, d, d.w.render(name, v), scanOne[uint64])
	slices.Sort(all)
	return all, err
}

// names reads a list of names, at most a batch.
func (d *Driver) names(ctx context.Context, statement string) ([]string, error) {
	all, err := look(ctx, d, d.w.render(statement, values{most: batch}), scanOne[string])
	return slices.DeleteFunc(all, func(name string) bool { return name == "" }), err
}

// transaction runs f in a transaction.
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
				if _, failed := c.ExecContext(ctx, "ROLLBACK"); failed != nil {
					discard(c)
				}
			}
			return err
		})
	})
}

// retry sends a request until it succeeds, if the server rolls it back or the tables are missing.
func (d *Driver) retry(ctx context.Context, send func() error) error {
	const most = 3 // times that the tables are created: somebody else may drop them
	for try := 0; ; try++ {
		created := d.created.Load() // others may create the tables after this finds that they are missing
		err := retryRolledBack(ctx, send)
		switch {
		case err == nil:
			d.created.Store(true)
			return nil
		case code(err) == errRange:
			return autocommitError(err)
		case code(err) == errNoColumn:
			if other := d.checkVersion(ctx, err); other != nil {
				return other
			}
			return err
		case code(err) != errNoTable || try == most:
			return err
		case created:
			return droppedError(err)
		}
		if err := d.create(ctx, err); err != nil {
			return err
		}
	}
}

// retryRolledBack sends a request until the server does not roll it back.
func retryRolledBack(ctx context.Context, send func() error) error {
	backoff := retry.Backoff{First: 2 * time.Millisecond, Most: 100 * time.Millisecond}
	for {
		err := send()
		if !rolledBack(err) || !retry.Sleep(ctx, backoff.Next(), nil) {
			return err
		}
	}
}
