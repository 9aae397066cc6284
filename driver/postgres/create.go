package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// createSchema runs the schema's SQL, once at a time, because a statement
// failed for want of it.
func (d *Driver) createSchema(ctx context.Context, missing error) error {
	if !d.opts.create || d.used.Load() {
		return &schemaError{missing: missing, used: d.used.Load()}
	}
	select {
	case d.create <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.create }()
	err := d.with(ctx, true, func(c *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			return d.w.create(ctx, tx.Conn())
		})
	})
	if err != nil && code(err) != "" {
		return &schemaError{missing: missing, cause: err}
	}
	return err
}

// schemaError says that the tables are missing, and why they were not created. Those
// that were used have vanished, and with them the tickets of who may still hold a lock:
// new ones would be granted beside them.
type schemaError struct {
	missing, cause error
	used           bool
}

func (e *schemaError) Error() string {
	if e.used {
		return "the tables of locker have vanished since they were first used (" + e.missing.Error() +
			"): restore them, or end all programs that hold locks before new ones are created"
	}
	s := "the tables of locker are missing (" + e.missing.Error() + ")"
	if e.cause != nil {
		s += " and could not be created: " + e.cause.Error()
	}
	return s + "; create them with the SQL that postgres.Schema returns"
}

func (e *schemaError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.missing}
	}
	return []error{e.cause, e.missing} // the code is that of the cause
}

// create makes what the schema lacks, on a connection that is in a transaction. Many
// programs may have missed it at once, and the first may be busy with it by the
// time that the last gets the lock: who makes an index waits for all who write to its
// table, even where it is there already, and others wait for who waits. So it
// looks first.
func (w *wire) create(ctx context.Context, c *pgx.Conn) error {
	var complete bool
	if _, err := c.Exec(ctx, w.lock, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if err := c.QueryRow(ctx, w.complete, pgx.QueryExecModeSimpleProtocol).Scan(&complete); err != nil || complete {
		return err
	}
	_, err := c.PgConn().Exec(ctx, w.schema).ReadAll()
	return err
}

// complete is a query whether all of some tables, indexes and sequences, and
// functions, are there.
func complete(relations, functions []string) string {
	var tests []string
	for _, r := range relations {
		tests = append(tests, "to_regclass("+literal(r)+") IS NOT NULL")
	}
	for _, f := range functions {
		tests = append(tests, "to_regproc("+literal(f)+") IS NOT NULL")
	}
	return "SELECT " + strings.Join(tests, " AND ")
}
