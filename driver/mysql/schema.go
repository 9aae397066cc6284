package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/retry"
)

//go:embed schema.sql
var schemaText string

// current is the edition of this package. Raise the version with any change of the tables,
// and of the statements if programs with the old ones must not run beside the new.
var current = sqlqueue.Edition{Version: "6", Hash: sqlqueue.Hash(schemaText, proceduresText)}

// column is the name of a column that statements name, so that no program inserts a ticket into tables of another edition.
func column(e sqlqueue.Edition) string { return "slot" + e.Name() }

// Schema returns the SQL that creates the tables, the view and the procedures for drivers with the same prefix. It is for programs
// that do not let the driver create them. It has no transaction control, since these servers commit each such
// statement, and may be run again. A statement ends with a semicolon and the end of a line: for the client mysql, which
// ends it at any semicolon, use its command DELIMITER, as the SQL that locker schema mysql prints does. MySQL before 8.0.29
// does not know IF NOT EXISTS for a procedure. See also [Driver.Schema].
func Schema(opts ...Option) (string, error) {
	_, w, err := newOptions(opts)
	if err != nil {
		return "", fmt.Errorf("mysql: Schema: %w", err)
	}
	return w.schema(), nil
}

// schema is the text that creates all.
func (w *wire) schema() string {
	return w.tableSchema() + "\n" + strings.Join(w.procedureStatements(), ";\n\n") + ";\n"
}

// tableSchema is the text that creates the tables and the view.
func (w *wire) tableSchema() string {
	var all strings.Builder
	for i := range slots {
		if i > 0 {
			all.WriteByte(',')
		}
		fmt.Fprintf(&all, "(%d)", i)
	}
	return strings.NewReplacer("{allslots}", all.String(), "{version}", w.edition.String(),
		"{name_shown}", shown("t.name"), "{owner_shown}", shown("t.owner"), "{note_shown}", shown("t.note"),
		"{age}", clockTime("TIMESTAMPDIFF(MICROSECOND, t.since, UTC_TIMESTAMP(6))"),
		"{remaining}", clockTime("TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), t.expires_at)"),
	).Replace(w.tables(schemaText))
}

// shown returns an expression for the bytes of a column as text for people.
func shown(column string) string {
	return "IF(LOWER(HEX(" + column + ")) REGEXP '" + sqlqueue.Shown("0x") + "', CONVERT(" + column + " USING utf8mb4), " +
		"CONVERT(CONCAT('0x', LOWER(HEX(" + column + "))) USING utf8mb4))"
}

// clockTime returns an expression for microseconds as days, hours, minutes, seconds and thousandths. A TIME ends at
// 838 hours.
func clockTime(micros string) string {
	const day = "86400000000"
	return "CONCAT(IF(" + micros + " >= " + day + ", CONCAT(" + micros + " DIV " + day + ", ' days '), ''), " +
		"LEFT(TIME_FORMAT(SEC_TO_TIME(MOD(" + micros + ", " + day + ") / 1000000), '%H:%i:%s.%f'), 12))"
}

// versionError says that the tables are of another edition.
type versionError struct {
	w       *wire
	comment string // of the table of tickets
	missing error  // the error that led to this
}

func (e *versionError) Error() string {
	w := e.w
	return w.edition.Differs(w.tickets, e.comment) + fmt.Sprintf("To move on, end all that use these tables, drop them "+
		"(DROP VIEW IF EXISTS %s; DROP TABLE IF EXISTS %s, %s, %s, %s) and create those of the new version with the SQL that "+
		"mysql.Schema returns (locker schema mysql), or choose another prefix", w.queues, w.tickets, w.slots, w.processes, w.tx)
}

func (e *versionError) Unwrap() error { return e.missing }

// Tables implements sqlqueue.Store.
func (s *store) Tables(ctx context.Context, missing error, create bool) (there bool, err error) {
	created := s.created.Load() // before the comments are read: then there have to be some
	comments, err := queryAny(ctx, s, s.w.render("schema", nil), scanOne[string])
	switch {
	case err != nil:
		return false, err
	case len(comments) > 0 && comments[0] != s.w.edition.Comment():
		return false, &versionError{w: s.w, comment: comments[0], missing: missing}
	case code(missing) == errNoColumn:
		return false, missing
	case len(comments) > 0 && (created || !create): // somebody is creating them, one after the other
		return retry.Sleep(ctx, 100*time.Millisecond, nil), nil
	case created:
		return false, droppedError(missing)
	case !s.opts.create:
		return false, fmt.Errorf("%w; the driver may not create it (create=false, WithoutCreate): run the SQL that mysql.Schema returns "+
			"(locker schema mysql)", missing)
	case !create:
		return false, nil
	}
	if err = s.with(ctx, s.createProcedures); err == nil { // first: who finds the tables relies on them
		err = s.with(ctx, s.createTables)
	}
	return err == nil, err
}

func (s *store) createTables(ctx context.Context, conn *sql.Conn) error {
	if err := s.checkAutocommit(ctx, conn); err != nil {
		return err
	}
	for _, statement := range s.w.tableStatements() {
		if err := createPart(ctx, conn, statement); err != nil {
			return err
		}
	}
	return nil
}

// checkAutocommit returns an error if autocommit is off in a session.
func (s *store) checkAutocommit(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, s.w.render("autocommit", nil))
	return explain(err)
}

// createProcedures creates the procedures where they are missing. They are parsed, and executed, in the SQL mode of the
// session that creates them.
func (s *store) createProcedures(ctx context.Context, conn *sql.Conn) error {
	if err := s.checkAutocommit(ctx, conn); err != nil {
		return err
	}
	defer discard(conn)
	if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = ''"); err != nil {
		return err
	}
	for _, statement := range s.w.procedureStatements() {
		if err := createPart(ctx, conn, statement); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) tableStatements() []string {
	return strings.Split(strings.TrimRight(w.tableSchema(), ";\n"), ";\n")
}

// createPart executes a statement of the schema. A view that exists stays: to replace it
// takes the right to drop. A user who may not create views does without it.
func createPart(ctx context.Context, conn *sql.Conn, statement string) error {
	const replace, ifNot = "CREATE OR REPLACE ", "CREATE PROCEDURE IF NOT EXISTS "
	view, procedure := strings.Contains(statement, replace), strings.Contains(statement, ifNot)
	statement = strings.Replace(strings.Replace(statement, replace, "CREATE ", 1), ifNot, "CREATE PROCEDURE ", 1) // of MySQL 8.0.29
	_, err := conn.ExecContext(ctx, statement)
	switch {
	case view && (denied(err) || code(err) == errTableExists), code(err) == errProcedureExists:
		return nil
	case procedure && denied(err):
		return fmt.Errorf("%w: the procedures are not there and this user may not create them: GRANT CREATE ROUTINE, EXECUTE ON the database, "+
			"or run the SQL that mysql.Schema returns (locker schema mysql)", err)
	case code(err) == errNoColumn:
		return fmt.Errorf("%w: a part of the tables of another version of the schema is there: end all that use it, and drop it", err)
	case denied(err):
		return fmt.Errorf("%w: the tables are not there and this user may not create them: run the SQL that mysql.Schema returns "+
			"(locker schema mysql)", err)
	}
	return err
}

// fillSlots inserts slots that somebody has deleted.
func (s *store) fillSlots(ctx context.Context) error {
	all := s.w.tableStatements()
	_, err := s.execText(ctx, func() string { return all[len(all)-1] })
	return err
}
