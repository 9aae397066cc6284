package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver/internal/sqlline"
)

var (
	//go:embed schema.sql
	schemaSQL string
	//go:embed queues.sql
	queuesSQL string
)

// An edition is a version of the tables and functions, and a hash of their text. The names of
// the functions end with it, so that a program never calls those of another version, or
// others under the same number: it does not find them. The comment of the table of tickets says which
// one has made it.
type edition struct{ version, hash string }

// current is the edition of this package. Whoever changes what the functions do, or the
// tables, raises the version.
var current = edition{"4", sqlline.Hash(schemaSQL, queuesSQL)}

func (e edition) suffix() string { return e.version + "_" + e.hash }

const commentBegin = "locker: tickets, schema "

func (e edition) comment() string { return commentBegin + e.String() }

func (e edition) String() string { return e.version + " (" + e.hash + ")" }

// versionError says that the tables are there, and of another edition.
type versionError struct {
	table, comment string
	want           edition
	missing        error // what was noticed
}

func (e *versionError) Error() string {
	have, ok := strings.CutPrefix(e.comment, commentBegin)
	if !ok {
		have = "before 4, unless the table is another program's"
	}
	return fmt.Sprintf("the table %s is of schema version %s, and this program needs version %s: run programs of one "+
		"version only. The SQL that postgres.Schema returns (locker schema postgres) moves the tables to the version of the "+
		"program that it is from; programs of other versions fail from then on", e.table, have, e.want)
}

func (e *versionError) Unwrap() error { return e.missing }

// A state is what a database has of the schema.
type state struct {
	table    bool   // of tickets
	comment  string // that it has
	complete bool   // all is there
}

// state asks for it.
func (w *wire) state(ctx context.Context, c *pgx.Conn) (s state, err error) {
	err = c.QueryRow(ctx, w.installed, pgx.QueryExecModeSimpleProtocol).Scan(&s.table, &s.comment, &s.complete)
	return s, err
}

// check is nil unless the tables are there, and of another edition. missing is what was noticed of
// that.
func (w *wire) check(s state, missing error) error {
	if !s.table || s.comment == w.edition.comment() {
		return nil
	}
	return &versionError{table: w.tickets, comment: s.comment, want: w.edition, missing: missing}
}

// installed is a query for the state: whether all of some tables, views, indexes and sequences, and
// functions, are there, the first of which is the table of tickets.
func installed(relations, functions []string) string {
	var tests []string
	for _, r := range relations {
		tests = append(tests, "to_regclass("+literal(r)+") IS NOT NULL")
	}
	for _, f := range functions {
		tests = append(tests, "to_regproc("+literal(f)+") IS NOT NULL")
	}
	return "SELECT " + tests[0] + ", coalesce(obj_description(to_regclass(" + literal(relations[0]) + "), 'pg_class'), ''), " + strings.Join(tests, " AND ")
}
