package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver"
)

// How long an urgent request waits for a connection of the pool before it goes
// its own way. The pool is the user's, who may be using all of it.
const patience = 200 * time.Millisecond

// patienceOf leaves most of the time that ctx gives to the request: the renewal
// of a short lease has little.
func patienceOf(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(patience, time.Until(end)/4)
	}
	return patience
}

// with runs f on a connection. A request is one statement, which is one
// transaction: nothing of it depends on the connection, so that a pooler in
// transaction mode may stand between.
func (d *Driver) with(ctx context.Context, urgent bool, f func(*pgx.Conn) error) error {
	if d.ctx.Err() != nil && urgent {
		return driver.ErrClosed
	}
	return d.anyConn(ctx, urgent, func(c *pgx.Conn) error {
		err := f(c)
		if code(err) != codeReadOnly {
			return err
		}
		var replica bool
		if e := c.QueryRow(ctx, "SELECT pg_is_in_recovery()", pgx.QueryExecModeSimpleProtocol).Scan(&replica); e == nil && !replica {
			d.strict.Store(true) // read only unless it is told otherwise
		} else {
			// A server that became a replica: connect again, perhaps elsewhere.
			_ = c.Close(ctx)
		}
		return err
	})
}

func (d *Driver) anyConn(ctx context.Context, urgent bool, f func(*pgx.Conn) error) error {
	wait, cancel := ctx, context.CancelFunc(func() {})
	switch {
	case urgent && d.pool.Stat().IdleConns() > 0: // nothing to wait for, as good as always
		wait = d.hurried.context()
	case urgent:
		wait, cancel = context.WithTimeout(ctx, patienceOf(ctx))
	}
	c, err := d.pool.Acquire(wait)
	tooLong := wait.Err() != nil && ctx.Err() == nil
	cancel()
	if err == nil {
		defer c.Release()
		return f(c.Conn())
	}
	if !tooLong {
		return err
	}
	return d.beside(ctx, f)
}

// hurried is a context that ends between one and two times patience after it was
// asked for. Requests of a short time share one, so that none sets a timer of its own.
type hurried struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc // of ctx, which others may hold: it ends by itself
	since  time.Time
}

func (h *hurried) context() context.Context {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil || now.Sub(h.since) > patience {
		h.since = now
		h.ctx, h.cancel = context.WithTimeout(context.Background(), 2*patience)
	}
	return h.ctx
}

// beside runs f on the connection that is kept beside the pool.
func (d *Driver) beside(ctx context.Context, f func(*pgx.Conn) error) error {
	var c *pgx.Conn
	select {
	case c = <-d.side:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var err error
	defer func() {
		if c != nil && c.IsClosed() {
			c = nil
		}
		d.side <- c
	}()
	if c == nil || c.IsClosed() {
		if c, err = d.connect(ctx); err != nil {
			c = nil
			return err
		}
	}
	return f(c)
}

// connect opens a connection outside the pool, as the pool would.
func (d *Driver) connect(ctx context.Context) (*pgx.Conn, error) {
	pc := d.pool.Config()
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
		hangUp(c)
		return nil, err
	}
	return c, nil
}

// query runs one statement and scans its rows; asked, which may be nil, is set
// to the moment before it is sent. When the schema is not there it is created,
// and the statement tried again.
func (d *Driver) query(ctx context.Context, urgent bool, asked *time.Time, scan func(pgx.Rows) error, sql string, args ...any) error {
	for range 3 { // of these, each once
		strict := d.strict.Load()
		err := d.queryOnce(ctx, urgent, asked, scan, sql, args...)
		switch code(err) {
		case codeIsolation:
			d.strict.Store(true)
		case codeReadOnly:
			if strict || !d.strict.Load() {
				return err
			}
		case "26000", "42P05": // no such prepared statement, or there is: a pooler
			d.plain.Store(true)
		case "42883", "42P01", "3F000": // no such function, table, schema
			if err := d.createSchema(ctx, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return d.queryOnce(ctx, urgent, asked, scan, sql, args...)
}

func (d *Driver) queryOnce(ctx context.Context, urgent bool, asked *time.Time, scan func(pgx.Rows) error,
	sql string, args ...any,
) error {
	all := append([]any{d.execMode()}, args...)
	return d.with(ctx, urgent, func(c *pgx.Conn) error {
		return watched(ctx, c, func(ctx context.Context) error {
			if asked != nil {
				*asked = time.Now()
			}
			if !d.strict.Load() {
				return collect(ctx, c, scan, sql, all)
			}
			return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
				return collect(ctx, tx, scan, sql, all)
			})
		})
	})
}

// execMode is how pgx runs statements: prepared and kept, which is fastest,
// unless the pool's user or a pooler on the way wants it otherwise.
func (d *Driver) execMode() pgx.QueryExecMode {
	switch {
	case d.mode == pgx.QueryExecModeSimpleProtocol, d.mode == pgx.QueryExecModeCacheStatement && !d.plain.Load():
		return d.mode
	default:
		return pgx.QueryExecModeExec // one round trip, nothing kept
	}
}

func collect(ctx context.Context, q interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, scan func(pgx.Rows) error, sql string, args []any,
) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if scan == nil {
			continue
		}
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// exec runs one statement for its effect.
func (d *Driver) exec(ctx context.Context, sql string, args ...any) error {
	return d.query(ctx, false, nil, nil, sql, args...)
}

// call runs a function of the schema, delivers the grants in its answer, and
// returns the rest.
func (d *Driver) call(ctx context.Context, asked *time.Time, sql string, args ...any) (reply, error) {
	var text string
	err := d.query(ctx, true, asked, func(rows pgx.Rows) error { return rows.Scan(&text) }, sql, args...)
	if err != nil {
		return reply{}, err
	}
	r, err := parseReply(text)
	for _, g := range r.grants {
		d.line.granted(g)
	}
	return r, err
}

// These are raised by the schema's functions.
const (
	codeIsolation = "LK001" // the transaction is not READ COMMITTED
	codeLeft      = "LK002" // who was to be handed over to has left: try again
)

// codeReadOnly is raised by a replica, and by a transaction that may not write.
const codeReadOnly = "25006"

// code is the SQLSTATE of an error; "" if it is not the database's.
func code(err error) string {
	if err == nil {
		return ""
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// undone reports whether the database says, or it is plain, that a statement
// had no effect and may succeed if it is run again: a deadlock, a
// serialization failure, a lock or statement timeout, a server that starts,
// stops or is a replica for the moment, too many connections.
func undone(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		var connect *pgconn.ConnectError
		return pgconn.SafeToRetry(err) && !errors.As(err, &connect)
	}
	switch pg.Code {
	case codeLeft, "40001", "40P01", "55P03", "57014", codeReadOnly, "57P03", "53300":
		return true
	}
	return false
}

// interrupted reports whether the way to the database broke: what was asked
// may or may not have been done.
func interrupted(err error) bool {
	switch code(err) {
	case "57P01", "57P02", "57P05":
		return true
	case "":
		var connect *pgconn.ConnectError
		return err != nil && !errors.As(err, &connect) && !errors.Is(err, errReply) && !errors.Is(err, driver.ErrClosed)
	}
	return false
}

const (
	retryFirst = 5 * time.Millisecond
	retryMost  = 250 * time.Millisecond
	interrupts = 3 // tries after a broken connection, before the error is the caller's
)

// retry runs f until it succeeds or fails for good. A request that may safely
// be asked twice is asked again after its connection broke.
func (d *Driver) retry(ctx context.Context, twice bool, f func() error) error {
	broken := 0
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		again := undone(err)
		if !again && twice && interrupted(err) {
			broken++
			again = broken <= interrupts
		}
		if !again {
			return err
		}
		if !d.pause(ctx, delay) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// pause waits; false when ctx or the driver ended first.
func (d *Driver) pause(ctx context.Context, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-d.ctx.Done():
	}
	return false
}
