package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

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
		if c := code(err); c != codeReadOnly && c != codeReplica {
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
	if urgent {
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

// A sideConn is the connection that is kept beside the pool.
type sideConn struct {
	*pgx.Conn
	used time.Time
}

// sideIdle is for how long it is trusted without use. The pool, too, looks after its own
// when they were idle for so long: after an outage they may be dead without a sign.
const sideIdle = time.Second

// beside runs f on the connection that is kept beside the pool.
func (d *Driver) beside(ctx context.Context, f func(*pgx.Conn) error) error {
	var c sideConn
	select {
	case c = <-d.side:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() {
		if c.Conn != nil && d.ctx.Err() != nil { // Close has not waited for it
			hangUp(ctx, c.Conn)
		}
		if c.Conn != nil && c.IsClosed() {
			c.Conn = nil
		}
		c.used = time.Now()
		d.side <- c
	}()
	if c.Conn != nil && time.Since(c.used) > sideIdle {
		hangUp(ctx, c.Conn)
		c.Conn = nil
	}
	if c.Conn == nil {
		var err error
		if c.Conn, err = d.connect(ctx); err != nil {
			c.Conn = nil
			return err
		}
	}
	return f(c.Conn)
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
		hangUp(ctx, c)
		return nil, err
	}
	return c, nil
}

// query runs one statement and scans its rows; asked, which may be nil, is set
// to the moment before it is sent. When the schema is not there, and never was, it is
// created, and the statement tried again.
func (d *Driver) query(ctx context.Context, urgent bool, asked *time.Time, scan func(pgx.Rows) error, sql string, args ...any) error {
	for range 3 { // of these, each once
		strict := d.strict.Load()
		err := d.queryOnce(ctx, urgent, asked, scan, sql, args...)
		switch code(err) {
		case "":
			if err == nil && !d.used.Load() {
				d.used.Store(true)
			}
			return err
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
