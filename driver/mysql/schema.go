package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/lockerproject/locker/driver/internal/sqlline"
)

//go:embed schema.sql
var schemaText string

// An edition is a version of the tables and of what programs do with them, and a hash of the
// tables' text. A column has a name that it is part of, so that no program takes a ticket in
// tables of another edition. The comment of the table of tickets says which one has made it.
type edition struct{ version, hash string }

// current is the edition of this package. Whoever changes the statements so that programs with the
// former ones may not run beside them, or the tables, raises the version.
var current = edition{"3", sqlline.Hash(schemaText)}

func (e edition) column() string { return "slot" + e.version + "_" + e.hash }

func (e edition) String() string { return e.version + " (" + e.hash + ")" }

const commentBegin = "locker: tickets, schema "

// Schema returns the SQL that makes the tables that New, with the same prefix, works
// on, and the view of them: for those who may not let the driver do so. It has no transaction
// control (no server has transactions for that), and may be run again. A driver has it, too.
func Schema(opts ...Option) (string, error) {
	o, err := newOptions(opts)
	if err != nil {
		return "", fmt.Errorf("mysql: Schema: %w", err)
	}
	w, err := newWire(current, o.prefix)
	if err != nil {
		return "", fmt.Errorf("mysql: Schema: %w", err)
	}
	return w.schema(), nil
}

// schema is the text that makes the tables.
func (w *wire) schema() string {
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
		"{remaining}", clockTime("TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), t.expires)"),
	).Replace(w.tables(schemaText))
}

// shown is the bytes of a column as text that people may be shown.
func shown(column string) string {
	return "IF(LOWER(HEX(" + column + ")) REGEXP '" + sqlline.Shown("0x") + "', CONVERT(" + column + " USING utf8mb4), " +
		"CONVERT(CONCAT('0x', LOWER(HEX(" + column + "))) USING utf8mb4))"
}

// clockTime is a number of microseconds as days, hours, minutes, seconds and thousandths. A TIME ends at 838 hours.
func clockTime(micros string) string {
	const day = "86400000000"
	return "CONCAT(IF(" + micros + " >= " + day + ", CONCAT(" + micros + " DIV " + day + ", ' days '), ''), " +
		"LEFT(TIME_FORMAT(SEC_TO_TIME(MOD(" + micros + ", " + day + ") / 1000000), '%H:%i:%s.%f'), 12))"
}

// versionError says that the tables are there, and of another edition.
type versionError struct {
	w       *wire
	comment string // of the table of tickets
	missing error  // what was noticed
}

func (e *versionError) Error() string {
	have, ok := strings.CutPrefix(e.comment, commentBegin)
	if !ok {
		have = "before 2, unless the table is another program's"
	}
	return fmt.Sprintf("the table %s is of schema version %s, and this program needs version %s: run programs of one "+
		"version only. To move on, end all that use these tables, drop them (DROP VIEW IF EXISTS %s; DROP TABLE IF EXISTS %s, %s, %s, %s) and "+
		"make those of the new version with the SQL that mysql.Schema returns (locker schema mysql), or choose another prefix",
		e.w.tickets, have, e.w.edition, e.w.queues, e.w.tickets, e.w.slots, e.w.tx, e.w.epochs)
}

func (e *versionError) Unwrap() error { return e.missing }

// checkVersion is an error if the tables are there, and of another edition. missing is what was noticed of that.
func (d *Driver) checkVersion(ctx context.Context, missing error) error {
	var comment string
	there := false
	err := insist(ctx, func() error {
		return d.queryOnce(ctx, d.w.render("version", values{}), func(rows *sql.Rows) error {
			there = true
			return rows.Scan(&comment)
		})
	})
	switch {
	case number(err) == errRange:
		return noAutocommit(err)
	case err != nil:
		return err
	case there && comment != commentBegin+d.w.edition.String():
		return &versionError{w: d.w, comment: comment, missing: missing}
	}
	return nil
}

// migrate makes the tables, which missing says are not there.
func (d *Driver) migrate(ctx context.Context, missing error) error {
	if !d.opts.create {
		return fmt.Errorf("%w; the driver may not create it (create=false, WithoutCreate): run the SQL that mysql.Schema returns "+
			"(locker schema mysql)", missing)
	}
	select {
	case d.migrating <- struct{}{}:
		defer func() { <-d.migrating }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := d.checkVersion(ctx, missing); err != nil { // some are there
		return err
	}
	return d.with(ctx, func(conn *sql.Conn) error { // one, in which autocommit is known to be on
		if _, err := conn.ExecContext(ctx, d.w.render("clock", values{})); err != nil {
			if number(err) == errRange {
				err = noAutocommit(err)
			}
			return err
		}
		for s := range strings.SplitSeq(d.w.schema(), ";\n") {
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
			if err := d.make(ctx, conn, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// make runs a statement of the schema. A view that is there is left: to replace it takes the right to drop. Where
// this user may not create views, people do without it until somebody runs what Schema returns.
func (d *Driver) make(ctx context.Context, conn *sql.Conn, statement string) error {
	const replace = "CREATE OR REPLACE "
	view := strings.Contains(statement, replace)
	statement = strings.Replace(statement, replace, "CREATE ", 1)
	err := insist(ctx, func() error { // others may be making them, too
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
	denied := slices.Contains([]uint16{errDenied, errDeniedSchema, errDeniedFor}, number(err))
	switch {
	case view && (denied || number(err) == errTableExists):
		return nil
	case number(err) == errNoColumn:
		return fmt.Errorf("%w: a part of the tables of another version of the schema is there: end all that use it, and drop it", err)
	case denied:
		return fmt.Errorf("%w: the tables are not there and this user may not create them: run the SQL that mysql.Schema returns "+
			"(locker schema mysql)", err)
	}
	return err
}

// fillSlots puts back rows of slots that somebody has removed.
func (d *Driver) fillSlots(ctx context.Context) error {
	all := strings.Split(strings.TrimSpace(d.w.schema()), ";\n")
	_, err := d.execOn(ctx, ctx, strings.TrimSuffix(all[len(all)-1], ";"))
	return err
}
