package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// A store has the connections. It is the dialect of the engine; see queue.go.
type store struct {
	opts options
	w    *wire
	pool *pgxpool.Pool
	mode pgx.QueryExecMode

	conns *sqlqueue.Pool[*pgx.Conn]

	unprepared atomic.Bool // prepared statements do not outlive a transaction here
	strict     atomic.Bool // the database's default isolation has to be overridden
}

// pooled is how requests get their connections.
func (s *store) pooled() *sqlqueue.Pool[*pgx.Conn] {
	return sqlqueue.NewPool(sqlqueue.Pool[*pgx.Conn]{
		Get: func(ctx context.Context) (*pgx.Conn, func(), error) {
			c, err := s.pool.Acquire(ctx)
			if err != nil {
				return nil, nil, err
			}
			return c.Conn(), c.Release, nil
		},
		Open:    s.connect,
		Close:   func(c *pgx.Conn) { hangUp(context.Background(), c) },
		IsAlive: func(c *pgx.Conn) bool { return !c.IsClosed() },
	})
}

// with runs f on a connection. A request is one statement, which is one transaction: nothing of it depends on the
// connection, so that a pooler in transaction mode may be in between.
func (s *store) with(ctx context.Context, f func(*pgx.Conn) error) error {
	return s.conns.Use(ctx, func(c *pgx.Conn) error {
		err := f(c)
		if !noWrites(err) {
			return err
		}
		var replica bool
		if e := c.QueryRow(ctx, "SELECT pg_is_in_recovery()", pgx.QueryExecModeSimpleProtocol).Scan(&replica); e == nil && !replica {
			s.strict.Store(true) // transactions are read only unless they begin otherwise
		} else {
			_ = c.Close(ctx) // of a server that became a replica: connect again, perhaps elsewhere
		}
		return err
	})
}

// connect opens a connection outside the pool, as the pool does.
func (s *store) connect(ctx context.Context) (*pgx.Conn, error) {
	pc := s.pool.Config()
	cc := pc.ConnConfig.Copy()
	if pc.BeforeConnect != nil {
		if err := pc.BeforeConnect(ctx, cc); err != nil {
			return nil, err
		}
	}
	c, err := pgx.ConnectConfig(ctx, cc)
	if err != nil || pc.AfterConnect == nil {
		return c, err
	}
	if err := pc.AfterConnect(ctx, c); err != nil {
		hangUp(ctx, c)
		return nil, err
	}
	return c, nil
}

// hangUp closes a connection without waiting for a server that does not answer.
func hangUp(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx)
}

// sending is how a statement is sent.
type sending struct {
	sent     *time.Time   // set to the moment before the statement is sent; may be nil
	until    func() int64 // called then: the last argument; may be nil
	notifies bool         // it may, and is a call with a condition, which is evaluated before the call
}

// A deadline is an argument that is asked for when the statement is about to be sent: pgx may have to prepare it first, which
// takes a round trip.
type deadline struct{ of func() int64 } // a struct, which the tracers of users can show

// Int64Value implements pgtype.Int64Valuer.
func (d deadline) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: d.of(), Valid: true}, nil
}

// query sends one statement and returns its rows. While the server's queue of notifications is full, a transaction that notifies
// fails. Then it is sent again and notifies nobody: heartbeats and renewals find what has happened. A sweep is not sent again: it
// seldom grants a ticket.
func query[T any](ctx context.Context, s *store, how sending, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	all, err := queryOnce(ctx, s, how, row, sql, args)
	if how.notifies && code(err) == codeProgramLimit {
		all, err = queryOnce(ctx, s, how, row, sql+set("locker.notify", "off"), args)
	}
	return all, err
}

func queryOnce[T any](ctx context.Context, s *store, how sending, row pgx.RowToFunc[T], sql string, args []any) (all []T, err error) {
	args = append([]any{s.execMode()}, args...)
	err = s.with(ctx, func(c *pgx.Conn) error {
		return interruptible(ctx, c, func(ctx context.Context) error {
			if how.sent != nil {
				*how.sent = time.Now()
			}
			switch {
			case how.until == nil:
			case args[0] == pgx.QueryExecModeCacheStatement:
				args = append(args, deadline{how.until})
			default:
				args = append(args, how.until())
			}
			collect := func(rows pgx.Rows, err error) error {
				if err == nil {
					all, err = pgx.CollectRows(rows, row)
				}
				return err
			}
			if !s.strict.Load() {
				return collect(c.Query(ctx, sql, args...))
			}
			return inReadWrite(ctx, c, func(tx pgx.Tx) error { return collect(tx.Query(ctx, sql, args...)) })
		})
	})
	switch code(err) {
	case codeIsolation:
		s.strict.Store(true)
	case codeNoStatement, codeStatementExists:
		s.unprepared.Store(true)
	}
	return all, err
}

// inReadWrite runs f in a transaction, whatever the database's defaults.
func inReadWrite(ctx context.Context, c *pgx.Conn, f func(pgx.Tx) error) error {
	begun := false
	err := pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		begun = true
		return f(tx)
	})
	if !begun && code(err) == "0A000" {
		return fmt.Errorf("%w: %w", errReplica, err)
	}
	return err
}

// execMode is how pgx executes statements: prepared once, which is fastest, unless the pool's configuration says
// otherwise or a pooler does not allow it.
func (s *store) execMode() pgx.QueryExecMode {
	switch {
	case s.mode == pgx.QueryExecModeSimpleProtocol, s.mode == pgx.QueryExecModeCacheStatement && !s.unprepared.Load():
		return s.mode
	default:
		return pgx.QueryExecModeExec // one round trip, nothing kept
	}
}

// interruptible runs f, which sends requests on a connection. When ctx ends, pgx interrupts them as the user has
// configured. By itself pgx starts a goroutine for that with every request, which took 14 % of the processor time of a
// client. Here a goroutine starts only when ctx ends.
func interruptible(ctx context.Context, c *pgx.Conn, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	interrupted := make(chan func())
	stop := context.AfterFunc(ctx, func() {
		h := c.Config().BuildContextWatcherHandler(c.PgConn())
		h.HandleCancel(ctx)
		interrupted <- h.HandleUnwatchAfterCancel
	})
	defer func() { // also after a panic in the user's code
		if !stop() {
			if resume := <-interrupted; !c.IsClosed() { // pgx has set its own deadline on a closed one
				resume()
			}
		}
	}()
	return f(context.WithoutCancel(ctx))
}
