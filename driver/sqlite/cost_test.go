package sqlite_test

import (
	"database/sql"
	"regexp"
	"strconv"
	"testing"

	"github.com/lockerproject/locker/driver/sqlite"
)

// numbered are the parameters that a statement numbers; others are counted.
var numbered = regexp.MustCompile(`\?(\d*)`)

// parameters returns a null for each parameter of a statement.
func parameters(statement string) []any {
	n := 0
	for _, m := range numbered.FindAllStringSubmatch(statement, -1) {
		if i, err := strconv.Atoi(m[1]); err == nil {
			n = max(n, i)
		} else {
			n++
		}
	}
	return make([]any, n)
}

// A temporary table, which a check, RETURNING or INSERT ... SELECT may need, takes as long as all the rest of a statement.
func TestFrequentStatementsMakeNoTemporaryTable(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	openAt(t, path)
	db := openDB(path)
	defer db.Close()
	for _, statement := range sqlite.FrequentStatements {
		rows, err := db.QueryContext(ctx, "EXPLAIN "+statement, parameters(statement)...)
		if err != nil {
			t.Fatal(err)
		}
		if n := temporaryTables(t, rows); n > 0 {
			t.Errorf("%d temporary tables: %s", n, statement)
		}
	}
}

func temporaryTables(t *testing.T, rows *sql.Rows) (n int) {
	t.Helper()
	defer rows.Close()
	for rows.Next() {
		var opcode string
		if err := rows.Scan(new(any), &opcode, new(any), new(any), new(any), new(any), new(any), new(any)); err != nil {
			t.Fatal(err)
		}
		if opcode == "OpenEphemeral" {
			n++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}
