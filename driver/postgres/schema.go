package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// current is the edition of this package. Raise the version with any change of the tables, or of what the functions do.
var current = sqlqueue.Edition{Version: "7", Hash: sqlqueue.Hash(schemaSQL, functionsSQL, backgroundSQL)}

// versionError says that the tables exist, and are of another edition.
type versionError struct {
	table, comment string
	want           sqlqueue.Edition
	missing        error // how it was noticed
}

func (e *versionError) Error() string {
	return e.want.Differs(e.table, e.comment) + "The SQL that postgres.Schema returns (locker schema postgres) moves the tables to the " +
		"version of the program that it is from; programs of other versions fail from then on"
}

func (e *versionError) Unwrap() error { return e.missing }

// schemaError says that the tables are missing, and why they were not created. If they were used before, tickets of
// current holders are lost with them, and new tables would let others acquire the same locks.
type schemaError struct {
	missing, cause error
	used           bool
	part           bool // there are tables of this version, without all that belongs to them
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

// Tables implements sqlqueue.Store.
func (s *store) Tables(ctx context.Context, missing error, create bool) (there bool, err error) {
	used := s.used.Load()
	mayCreate := s.opts.create && !used
	if !mayCreate || !create {
		var is state
		err = s.with(ctx, func(c *pgx.Conn) error {
			is, err = s.w.state(ctx, c, missing)
			return err
		})
		switch {
		case err != nil || is.complete: // somebody has created it since the statement failed
			return err == nil, err
		case !mayCreate:
			return false, &schemaError{missing: missing, used: used, part: is.table}
		case !is.table:
			return false, nil
		}
	}
	err = s.with(ctx, func(c *pgx.Conn) error {
		return inReadWrite(ctx, c, func(tx pgx.Tx) error { return s.w.create(ctx, tx.Conn(), missing) })
	})
	var other *versionError
	if err != nil && code(err) != "" && !errors.As(err, &other) {
		err = &schemaError{missing: missing, cause: err}
	}
	return err == nil, err
}

// create runs the SQL of the schema, on a connection that is in a transaction. Many programs may do so at once. Another
// may have run the SQL before this one gets the lock, so create checks first. It leaves tables of another version as
// they are: programs of that version may be running.
func (w *wire) create(ctx context.Context, c *pgx.Conn, missing error) error {
	if _, err := c.Exec(ctx, w.lock, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if s, err := w.state(ctx, c, missing); err != nil || s.complete {
		return err
	}
	_, err := c.PgConn().Exec(ctx, w.schema).ReadAll()
	return err
}

// A state is what a database has of the schema.
type state struct {
	table    bool // of tickets
	complete bool // everything
}

// state reads what is there. It fails if that is of another edition; missing is the error that led to this.
func (w *wire) state(ctx context.Context, c *pgx.Conn, missing error) (s state, err error) {
	var comment string
	err = c.QueryRow(ctx, w.installed, pgx.QueryExecModeSimpleProtocol).Scan(&s.table, &comment, &s.complete)
	if err == nil && s.table && comment != w.edition.Comment() {
		err = &versionError{table: w.tickets, comment: comment, want: w.edition, missing: missing}
	}
	return s, err
}

// installed returns the columns that state reads. The first of the relations is the table of tickets.
func installed(relations, functions []string) string {
	var tests []string
	for _, r := range relations {
		tests = append(tests, "to_regclass("+literal(r)+") IS NOT NULL")
	}
	for _, f := range functions {
		tests = append(tests, "to_regproc("+literal(f)+") IS NOT NULL")
	}
	return tests[0] + ", coalesce(obj_description(to_regclass(" + literal(relations[0]) + "), 'pg_class'), ''), " + strings.Join(tests, " AND ")
}

// lacks returns an expression for the names of the rights that a role lacks; NULL or empty: none.
func lacks(n names) string {
	var tests []string
	test := func(kind, object, name, right string) {
		tests = append(tests, "CASE WHEN NOT has_"+kind+"_privilege("+object+", '"+right+"') THEN "+literal(right+" on "+name)+" END")
	}
	for _, table := range []string{n.qualified("tickets"), n.qualified("processes")} {
		for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			test("table", literal(table), table, right)
		}
	}
	for _, right := range []string{"USAGE", "UPDATE"} {
		test("sequence", literal(n.qualified("token")), "sequence "+n.qualified("token"), right)
	}
	for _, f := range n.functions() {
		test("function", literal(f)+"::text::regproc", "function "+f, "EXECUTE")
	}
	schema := pgx.Identifier{n.schema}.Sanitize()
	return "CASE WHEN NOT has_schema_privilege(" + literal(n.schema) + ", 'USAGE') THEN " + literal("USAGE on schema "+schema) +
		" ELSE concat_ws(', ',\n\t" + strings.Join(tests, ",\n\t") + ") END"
}
