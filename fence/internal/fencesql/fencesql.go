// Package fencesql has the statements of a table of fences, which the guards over
// database/sql and pgx share: both may use one table.
package fencesql

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lockerproject/locker"
)

// Statements are the statements for one table.
type Statements struct {
	// Schema creates the table if it is missing.
	Schema string
	// Raise compares and raises the fence of a name, and returns the token that is
	// the greatest now: as its result on PostgreSQL, as the last insert ID on
	// MySQL, where 0 means that the name is new. Its parameters are the name and
	// the token, on MySQL twice the token.
	Raise string
}

// lockKey is the advisory lock under which tables of fences are created on PostgreSQL.
const lockKey = "7737260338741178213"

// Postgres returns the statements for PostgreSQL. The row of the fence stays
// locked until the transaction ends.
func Postgres(table string) (Statements, error) {
	t, err := quote(table, `"`)
	if err != nil {
		return Statements{}, err
	}
	tag := "$locker$"
	for strings.Contains(t, tag) {
		tag = "$" + "_" + tag[1:]
	}
	return Statements{
		Schema: `DO ` + tag + ` BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(` + lockKey + `); -- CREATE TABLE IF NOT EXISTS by two at once may fail
  CREATE TABLE IF NOT EXISTS ` + t + ` (
    name bytea PRIMARY KEY,         -- of the lock
    token bigint NOT NULL,          -- the greatest one seen
    raised_at timestamptz NOT NULL
  );
END ` + tag + `;
`,
		Raise: `INSERT INTO ` + t + ` AS f (name, token, raised_at) VALUES ($1, $2, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET token = greatest(f.token, excluded.token), raised_at = excluded.raised_at
RETURNING f.token`,
	}, nil
}

// MySQL returns the statements for MySQL and MariaDB. LAST_INSERT_ID(expr) is
// their way to return a value of an INSERT, see "INSERT ... ON DUPLICATE KEY UPDATE"
// in their manuals. The row of the fence stays locked until the transaction ends.
func MySQL(table string) (Statements, error) {
	t, err := quote(table, "`")
	if err != nil {
		return Statements{}, err
	}
	return Statements{
		Schema: `CREATE TABLE IF NOT EXISTS ` + t + ` (
  name VARBINARY(512) NOT NULL,   -- of the lock
  token BIGINT NOT NULL,          -- the greatest one seen
  raised_at DATETIME(6) NOT NULL, -- UTC
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
`,
		Raise: `INSERT INTO ` + t + ` (name, token, raised_at) VALUES (?, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, ?)), raised_at = UTC_TIMESTAMP(6)`,
	}, nil
}

// maxPart is the longest identifier of PostgreSQL, which cuts off the rest. MySQL's
// is one longer.
const maxPart = 63

// quote quotes the name of a table, or of a schema and a table.
func quote(table, mark string) (string, error) {
	parts := strings.Split(table, ".")
	for i, p := range parts {
		if p == "" || len(p) > maxPart || len(parts) > 2 || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
			return "", fmt.Errorf("fence: %w: table %q: want table or schema.table, each of 1 to %d bytes", locker.ErrInvalidOption, table, maxPart)
		}
		parts[i] = mark + strings.ReplaceAll(p, mark, mark+mark) + mark
	}
	return strings.Join(parts, "."), nil
}
