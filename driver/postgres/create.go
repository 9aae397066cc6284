package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// createSchema runs the schema's SQL, once at a time, because a statement
// failed for want of it. It returns nil if that may succeed now.
func (d *Driver) createSchema(ctx context.Context, missing error) error {
	if !d.opts.create || d.used.Load() {
		return d.whyMissing(ctx, missing)
	}
	select {
	case d.create <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.create }()
	err := d.with(ctx, true, func(c *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			return d.w.create(ctx, tx.Conn(), missing)
		})
	})
	var other *versionError
	if err != nil && code(err) != "" && !errors.As(err, &other) {
		return &schemaError{missing: missing, cause: err}
	}
	return err
}

// whyMissing says why something is missing that this driver is not to create.
func (d *Driver) whyMissing(ctx context.Context, missing error) error {
	var s state
	err := d.with(ctx, true, func(c *pgx.Conn) (err error) {
		s, err = d.w.state(ctx, c)
		return err
	})
	if err == nil {
		err = d.w.check(s, missing)
	}
	if err != nil {
		return err
	}
	return &schemaError{missing: missing, used: d.used.Load(), part: s.table}
}

// schemaError says that the tables are missing, and why they were not created. Those
// that were used have vanished, and with them the tickets of who may still hold a lock:
// new ones would be granted beside them.
type schemaError struct {
	missing, cause error
	used           bool
	part           bool // there are tables of this very version, without all that belongs to them
}

func (e *schemaError) Error() string {
	if e.used {
		return "the tables of locker have vanished since they were first used (" + e.missing.Error() +
			"): restore them, or end all programs that hold locks before new ones are created"
	}
	s := "the tables of locker are missing ("
	if e.part {
		s = "a part of the tables and functions of locker is missing ("
	}
	s += e.missing.Error() + ")"
	if e.cause != nil {
		s += " and could not be created: " + e.cause.Error()
	}
	return s + "; create them with the SQL that postgres.Schema returns (locker schema postgres)"
}

func (e *schemaError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.missing}
	}
	return []error{e.cause, e.missing} // the code is that of the cause
}

// create makes what the schema lacks, on a connection that is in a transaction. Many
// programs may have missed it at once, and the first may be busy with it by the
// time that the last gets the lock, so it looks first. What another version has made is
// left as it is: its programs may be running.
func (w *wire) create(ctx context.Context, c *pgx.Conn, missing error) error {
	if _, err := c.Exec(ctx, w.lock, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	s, err := w.state(ctx, c)
	if err == nil {
		err = w.check(s, missing)
	}
	if err != nil || s.complete {
		return err
	}
	_, err = c.PgConn().Exec(ctx, w.schema).ReadAll()
	return err
}
