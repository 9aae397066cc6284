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

// exec sends a statement, which is its own transaction.
func (s *store) exec(ctx context.Context, name string, v values) (sql.Result, error) {
	return s.execText(ctx, func() string { return s.w.render(name, v) })
}

// execText is exec for a text, which is made when it is about to be sent.
func (s *store) execText(ctx context.Context, text func() string) (r sql.Result, err error) {
	err = s.send(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		r, err = c.ExecContext(ctx, text())
		return err
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

// insert is exec for a statement of which only the number of the row that it inserts matters, or what it sets in its place.
func (s *store) insert(ctx context.Context, name string, v values) (key int64, err error) {
	r, err := s.exec(ctx, name, v)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
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
