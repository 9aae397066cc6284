package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
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
// does not know IF NOT EXISTS for a procedure.
func Schema(opts ...Option) (string, error) {
	_, w, err := newOptions(opts)
	if err != nil {
		return "", fmt.Errorf("mysql: Schema: %w", err)
	}
	return w.schema(), nil
}

// schema is the text that creates all.
func (w *wire) schema() string {
	create := strings.Join(w.procedureStatements(), ";\n\n") + ";\n"
	return w.tableSchema() + "\n" + strings.ReplaceAll(create, "CREATE PROCEDURE", "CREATE PROCEDURE IF NOT EXISTS")
}

// tableSchema is the text that creates the tables and the view.
func (w *wire) tableSchema() string {
	all := make([]string, slots)
	for i := range all {
		all[i] = fmt.Sprintf("(%d)", i)
	}
	return strings.NewReplacer("{allslots}", strings.Join(all, ","), "{version}", w.edition.String(),
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

// described is how programs say what is wrong with the tables.
func (s *store) described() sqlqueue.Schema {
	w := s.w
	return sqlqueue.Schema{
		Edition: w.edition, Tickets: w.tickets, Package: "mysql", Create: s.opts.create,
		Upgrade: fmt.Sprintf("To move on, end all that use these tables, drop them "+
			"(DROP VIEW IF EXISTS %s; DROP TABLE IF EXISTS %s, %s, %s, %s) and create those of the new version with the SQL that "+
			"mysql.Schema returns (locker schema mysql), or choose another prefix", w.queues, w.tickets, w.slots, w.processes, w.tx),
	}
}

// Tables implements sqlqueue.Store.
func (s *store) Tables(ctx context.Context) (t sqlqueue.Tables, err error) {
	comments, err := query(ctx, s, s.w.render("schema", nil), scanOne[string])
	if len(comments) > 0 {
		t.Tickets, t.Comment = true, comments[0]
	}
	return t, err
}

// Create implements sqlqueue.Store. The procedures are first, since who finds the tables relies on them. They are parsed, and
// executed, in the SQL mode of the session that creates them.
func (s *store) Create(ctx context.Context) error {
	return s.with(ctx, func(ctx context.Context, conn *sql.Conn) error {
		defer discard(conn)
		_, err := conn.ExecContext(ctx, s.w.render("autocommit", nil))
		if err == nil {
			_, err = conn.ExecContext(ctx, "SET SESSION sql_mode = ''")
		}
		for _, statement := range append(s.w.procedureStatements(), s.w.tableStatements()...) {
			if err == nil {
				err = createPart(ctx, conn, statement)
			}
		}
		return explain(err)
	})
}

func (w *wire) tableStatements() []string {
	return strings.Split(strings.TrimRight(w.tableSchema(), ";\n"), ";\n")
}

// createPart executes a statement of the schema. A view that exists stays: to replace it
// takes the right to drop. A user who may not create views does without it.
func createPart(ctx context.Context, conn *sql.Conn, statement string) error {
	create := strings.Replace(statement, "CREATE OR REPLACE ", "CREATE ", 1)
	view := create != statement
	_, err := conn.ExecContext(ctx, create)
	switch {
	case view && (denied(err) || code(err) == errTableExists), code(err) == errProcedureExists:
		return nil
	case code(err) == errNoColumn:
		return fmt.Errorf("%w: a part of the tables of another version of the schema is there: end all that use it, and drop it", err)
	case denied(err):
		return fmt.Errorf("%w: GRANT CREATE, CREATE ROUTINE, EXECUTE ON the database", err)
	}
	return err
}

// fillSlots inserts slots that somebody has deleted.
func (s *store) fillSlots(ctx context.Context) error {
	all := s.w.tableStatements()
	return s.send(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, all[len(all)-1])
		return err
	})
}
