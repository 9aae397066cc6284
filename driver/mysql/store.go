package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// A store has the connections. It is the dialect of the engine; see queue.go.
type store struct {
	opts options
	w    *wire
	db   *sql.DB

	conns     *sqlqueue.Pool[*sql.Conn]
	closed    context.Context           //nolint:containedctx // ends when Close does
	created   atomic.Bool               // they were there: they are not created again
	idleStale atomic.Bool               // idle connections may have ended
	start     atomic.Uint64             // of the server that statements are meant for; 0: not known
	before    atomic.Uint64             // the same, of the last one that was known
	listening atomic.Pointer[listening] // what wakes this process
}

// exec sends a statement, which is its own transaction. It is sent again as long as the
// server rolls it back, and after the tables and the procedures were created if they were missing.
func (s *store) exec(ctx context.Context, name string, v values) (sql.Result, error) {
	return s.execText(ctx, func() string { return s.w.render(name, v) })
}

// execText is exec for a text, which is made when it is about to be sent.
func (s *store) execText(ctx context.Context, text func() string) (r sql.Result, err error) {
	err = s.retry(ctx, func() error {
		return s.with(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
			r, err = c.ExecContext(ctx, text())
			return err
		})
	})
	return r, err
}

// change is exec for a statement of which only the number of changed rows matters.
func (s *store) change(ctx context.Context, name string, v values) (int64, error) {
	r, err := s.exec(ctx, name, v)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query reads the rows of a query.
func query[T any](ctx context.Context, s *store, text string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = s.retry(ctx, func() error {
		all, err = queryOnce(ctx, s, text, scan)
		return err
	})
	return all, err
}

// look is query for a request that changes nothing: where there are no tables yet it finds nothing, and creates none.
func look[T any](ctx context.Context, s *store, text string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	if s.opts.create && !s.created.Load() {
		err := retryRolledBack(ctx, func() (err error) {
			all, err = queryOnce(ctx, s, text, scan)
			return err
		})
		if err == nil {
			s.created.Store(true)
			return all, nil
		}
		if code(err) == errNoTable {
			tables, err := queryOnce(ctx, s, s.w.render("schema", nil), scanOne[string])
			if err == nil && len(tables) == 0 {
				return nil, nil
			}
		}
	}
	return query(ctx, s, text, scan)
}

func queryOnce[T any](ctx context.Context, s *store, text string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = s.with(ctx, func(ctx context.Context, c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, text)
		if broken(err) { // a query may be sent again
			return errors.Join(sqldriver.ErrBadConn, err)
		}
		all, err = scanAll(rows, err, scan)
		return err
	})
	return all, err
}

// insert sends a statement that inserts a ticket. It returns the number of the row, or what the statement has set in its
// place.
func (s *store) insert(ctx context.Context, name string, v values) (key int64, err error) {
	r, err := s.exec(ctx, name, v)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
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

// retry sends a request until it succeeds, if the server rolls it back or the tables are missing.
func (s *store) retry(ctx context.Context, send func() error) error {
	const most = 3 // times that the tables are created: somebody else may drop them
	for try := 0; ; try++ {
		created := s.created.Load() // others may create the tables after this finds that they are missing
		err := retryRolledBack(ctx, send)
		switch {
		case err == nil:
			s.created.Store(true)
			return nil
		case code(err) == errRange:
			return autocommitError(err)
		case code(err) == errNoColumn:
			if other := s.checkVersion(ctx, err); other != nil {
				return other
			}
			return err
		case code(err) == errDeniedRoutine:
			return fmt.Errorf("%w: the driver calls procedures, for which the user needs a right: GRANT EXECUTE ON the database", err)
		case !isOneOf(err, errNoTable, errNoProcedure) || try == most:
			return err
		case created:
			return droppedError(err)
		}
		if err := s.create(ctx, err); err != nil {
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
