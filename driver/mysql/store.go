package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// A store has the connections. It is the dialect of the engine; see queue.go.
type store struct {
	opts options
	w    *wire
	db   *sql.DB

	conns     *sqlqueue.Pool[*sql.Conn]
	closed    context.Context           //nolint:containedctx // ends when Close does
	idleStale atomic.Bool               // idle connections may have ended
	start     atomic.Uint64             // of the server that statements are meant for; 0: not known
	before    atomic.Uint64             // the same, of the last one that was known
	listening atomic.Pointer[listening] // what wakes this process
}

// exec sends a statement, which is its own transaction. It returns how many rows that changed, and the number of the row that it
// inserted, or what it sets in its place.
func (s *store) exec(ctx context.Context, name string, v values) (changed, key int64, err error) {
	err = s.send(ctx, func(ctx context.Context, c *sql.Conn) error {
		r, err := c.ExecContext(ctx, s.w.render(name, v)) // which asks how late it is: not before the statement is sent
		if err == nil {
			changed, err = r.RowsAffected()
		}
		if err == nil {
			key, err = r.LastInsertId()
		}
		return err
	})
	return changed, key, err
}

// send sends a request.
func (s *store) send(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	return explain(s.with(ctx, f))
}

// query reads the rows of a query.
func query[T any](ctx context.Context, s *store, text string, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = s.send(ctx, func(ctx context.Context, c *sql.Conn) error {
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
