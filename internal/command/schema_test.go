package command_test

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/fence/sqlfence"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// schemaOf runs locker schema.
func schemaOf(t *testing.T, args ...string) string {
	t.Helper()
	r := commandtest.Command(t, append([]string{"schema"}, args...)...).Run()
	if r.Code != 0 || r.ErrOut != "" {
		t.Fatal(r)
	}
	return r.Out
}

// TestSchemaPostgres applies it as a migration tool does: in a transaction of its
// own, which it may roll back.
func TestSchemaPostgres(t *testing.T) {
	t.Parallel()
	db := postgresOf(t, testbed.SharedPostgres(t).URL())
	text := schemaOf(t, "postgres", "--schema", "migrated", "--prefix", "team")
	for range 2 {
		exec(t, db, "BEGIN")
		exec(t, db, text)
		exec(t, db, schemaOf(t, "postgres", "--fence", "migrated.fences"))
		exec(t, db, "ROLLBACK")
	}
	var there bool
	if err := db.QueryRow(t.Context(), "SELECT to_regnamespace('migrated') IS NOT NULL").Scan(&there); err != nil || there {
		t.Errorf("what was rolled back is there: %v, error %v", there, err)
	}
	exec(t, db, "BEGIN")
	exec(t, db, text)
	exec(t, db, text) // it may be run again
	exec(t, db, "COMMIT")
	url := ownURL(testbed.SharedPostgres(t).URL(), "schema=migrated&prefix=team&create=false")
	hold(t, client(t, url), "a")
	if r := on(t, url, "list").Run(); r.Code != 0 || !strings.Contains(r.Out, "\na ") {
		t.Error(r)
	}
}

// ownURL adds parameters.
func ownURL(url, parameters string) string {
	if strings.Contains(url, "?") {
		return url + "&" + parameters
	}
	return url + "?" + parameters
}

func TestSchemaMySQL(t *testing.T) {
	t.Parallel()
	url := testbed.SharedMariaDB(t).URL()
	address := strings.TrimPrefix(url, "mysql://")
	account, rest, _ := strings.Cut(address, "@")
	user, password, _ := strings.Cut(account, ":")
	host, database, _ := strings.Cut(rest, "/")
	config := mysqldriver.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr = user, password, "tcp", host
	config.DBName, config.MultiStatements = database, true
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 2 {
		for _, text := range []string{schemaOf(t, "mysql", "--prefix", "team"), schemaOf(t, "mysql", "--fence", "team_fences")} {
			if _, err := db.ExecContext(t.Context(), withoutDelimiters.Replace(text)); err != nil {
				t.Fatalf("%v, of %s", err, text)
			}
		}
	}
	k := hold(t, client(t, ownURL(url, "prefix=team&create=false")), "a")
	fences, err := sqlfence.New(sqlfence.MySQL, "team_fences")
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.Do(t.Context(), db, fences, k, func(*sql.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
}

// withoutDelimiters turns what the client mysql reads into SQL that a server reads.
var withoutDelimiters = strings.NewReplacer("DELIMITER //\n", "", "DELIMITER ;\n", "", " //\n", ";\n")

// TestSchemaControlsNoTransaction reads the SQL outside of the bodies of functions and procedures.
func TestSchemaControlsNoTransaction(t *testing.T) {
	t.Parallel()
	body := regexp.MustCompile(`(?s)\$(\w*)\$.*?\$(\w*)\$|CREATE PROCEDURE[^\n]*`)
	comment := regexp.MustCompile(`(?m)--.*$`)
	control := regexp.MustCompile(`(?i)\b(BEGIN|COMMIT|ROLLBACK|START TRANSACTION|SAVEPOINT|SET autocommit)\b`)
	for _, args := range [][]string{{"postgres"}, {"mysql"}, {"postgres", "--fence", "f"}, {"mysql", "--fence", "f"}} {
		text := schemaOf(t, args...)
		if found := control.FindString(comment.ReplaceAllString(body.ReplaceAllString(text, ""), "")); found != "" {
			t.Errorf("schema %q has %s", args, found)
		}
		if !strings.Contains(text, "CREATE TABLE IF NOT EXISTS") || !strings.HasSuffix(text, ";\n") {
			t.Errorf("schema %q is %.100q … %q", args, text, text[max(0, len(text)-40):])
		}
	}
}

func TestSchemaJSON(t *testing.T) {
	t.Parallel()
	type schema struct{ Store, SQL string }
	s := decode[schema](t, schemaOf(t, "mysql", "--json"))
	if len(s) != 1 || s[0].Store != "mysql" || s[0].SQL != schemaOf(t, "mysql") {
		t.Errorf("%+v", s)
	}
}

func TestSchemaWrongUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"redis"},
		{"postgres", "mysql"},
		{"mysql", "--schema", "x"},
		{"postgres", "--prefix", "x", "--fence", "y"},
		{"postgres", "--prefix", strings.Repeat("x", 100)},
		{"postgres", "--fence", "a.b.c"},
		{"mysql", "--prefix", "a b;"},
	} {
		r := commandtest.Command(t, append([]string{"schema"}, args...)...).Run()
		if r.Code != command.ExitUsage || r.Out != "" || r.ErrOut == "" {
			t.Error(r)
		}
	}
}
