package mysql_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// refusedBy checks that each verb that a program may begin with fails, and names both versions and what to do.
func refusedBy(t *testing.T, d *mysql.Driver, versions ...string) {
	t.Helper()
	_, acquire := d.Acquire(t.Context(), driver.Request{Name: "a", ID: "stranger", TTL: time.Minute})
	_, inspect := d.Inspect(t.Context(), "a")
	_, list := d.List(t.Context())
	for verb, err := range map[string]error{
		"acquire": acquire, "inspect": inspect, "list": list, "ping": d.Ping(t.Context()),
		"break": d.Break(t.Context(), "a", 1<<21),
	} {
		if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v, want an error about versions", verb, err)
			continue
		}
		for _, want := range append(versions, "mysql.Schema", "DROP TABLE", "_tickets") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %q, want %q in it", verb, err, want)
			}
		}
	}
}

// Two versions of the tables, or two layouts under one version, are an error for the second program, and for the first
// one after its tables are changed.
func TestTwoVersions(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		for _, other := range []mysql.Edition{
			mysql.NewEdition("7", "0123abcd"), mysql.NewEdition(strings.Fields(mysql.Current.String())[0], "0123abcd"),
		} {
			_, old, prefix := fresh(t, db)
			held := driver.Request{Name: "a", ID: "held", TTL: time.Minute}
			g, err := old.Acquire(t.Context(), held)
			must(t, err)
			var newer *mysql.Driver
			for _, opt := range []mysql.Option{mysql.WithoutCreate(), nil} {
				_, newer = join(t, db, prefix, opt)
				newer.Become(other)
				refusedBy(t, newer, mysql.Current.String(), other.String())
			}
			must(t, old.Renew(t.Context(), held.Hold(g.Token), time.Minute))

			// As the error says, except that not all programs have ended.
			for _, s := range []string{"DROP VIEW %s_queues", "DROP TABLE %s_tickets, %[1]s_slots, %[1]s_processes, %[1]s_tx"} {
				_, err = db.ExecContext(t.Context(), fmt.Sprintf(s, prefix))
				must(t, err)
			}
			g2, err := newer.Acquire(t.Context(), held)
			must(t, err)
			if g2.Token <= g.Token {
				t.Errorf("token %d after %d", g2.Token, g.Token)
			}
			_, err = old.Acquire(t.Context(), driver.Request{Name: "b", ID: "late", TTL: time.Minute})
			if err == nil || !strings.Contains(err.Error(), other.String()) || !strings.Contains(err.Error(), mysql.Current.String()) {
				t.Errorf("on tables that were changed under it: %v", err)
			}
			_, again := join(t, db, prefix) // whose procedures are still there
			refusedBy(t, again, mysql.Current.String(), other.String())
		}
	})
}

// Programs of version 3, which have statements with a column that is not there, are refused,
// and so is this one on tables of that version.
func TestVersionBefore(t *testing.T) {
	srv := testbed.SharedMariaDB(t)
	db := connect(t, srv, "")
	const version, column = "3 (9cfbf3ba)", "slot3_9cfbf3ba"
	_, d, prefix := fresh(t, db)
	must(t, d.Ping(t.Context()))
	_, err := db.ExecContext(t.Context(), fmt.Sprintf("SELECT %s FROM %s_slots WHERE %[1]s = 1", column, prefix))
	if err == nil || !strings.Contains(err.Error(), "1054") {
		t.Errorf("a statement of version 3: %v", err)
	}
	for _, s := range []string{
		"_tickets COMMENT 'locker: tickets, schema " + version + "'",
		"_slots CHANGE " + mysql.SlotColumn + " " + column + " SMALLINT UNSIGNED NOT NULL",
	} {
		_, err = db.ExecContext(t.Context(), "ALTER TABLE "+prefix+s)
		must(t, err)
	}
	_, now := join(t, db, prefix)
	refusedBy(t, now, "schema version "+version, mysql.Current.String())
}

// Tokens grow over the change from version 3, whose tokens were the clock in milliseconds times 2^20, and more.
func TestTokensGrowOverVersion3(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		old := uint64(time.Now().UnixMilli())<<20 + 1 //nolint:gosec // after 1970
		time.Sleep(2 * time.Millisecond)
		l, _, _ := fresh(t, connect(t, srv, ""))
		k := take(t, l, "a")
		if k.Token() <= old {
			t.Errorf("token %d after %d", k.Token(), old)
		}
		must(t, k.Release(t.Context()))
	})
}

func TestEarlierLayout(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		_, err := db.ExecContext(t.Context(), "CREATE TABLE "+prefix+"_tickets (place VARBINARY(512) PRIMARY KEY, token BIGINT)")
		must(t, err)
		if _, err := l.Acquire(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "unknown, or the table") {
			t.Errorf("on tables of an earlier layout: %v", err)
		}
	})
}

// If you change a statement, decide whether programs with the former one may run beside it. If not, raise the version.
// In any case change the hash, which is in the error of this test.
func TestStatementsOfThisVersion(t *testing.T) {
	const version, hash = "6", "440c944d"
	if now := strings.Fields(mysql.Current.String())[0]; now != version || sqlqueue.Hash(mysql.StatementsText) != hash {
		t.Errorf("version %s of the tables is used by statements with the hash %s, want version %s and %s",
			now, sqlqueue.Hash(mysql.StatementsText), version, hash)
	}
}

// The SQL for a DBA can be run by the client, and by an Exec, repeatedly, while the locks are in use.
func TestSchemaSQL(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "?multiStatements=true")
		_, d, prefix := fresh(t, db, mysql.WithoutCreate())
		schema, err := mysql.Schema(mysql.WithPrefix(prefix))
		must(t, err)
		tables, _, _ := strings.Cut(schema, "CREATE PROCEDURE")
		for _, word := range []string{"BEGIN", "COMMIT;", "ROLLBACK", "START TRANSACTION"} {
			if strings.Contains(tables, word) {
				t.Errorf("it has %s", word)
			}
		}
		forClient := "DELIMITER //\n" + strings.ReplaceAll(schema, ";\n", " //\n") // as locker schema mysql prints it
		client(t, srv, forClient)
		must(t, d.Ping(t.Context()))
		r := driver.Request{Name: "a", ID: "held", TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		client(t, srv, forClient)
		_, err = db.ExecContext(t.Context(), schema)
		must(t, err)
		for s := range strings.SplitSeq(schema, ";\n") { // as migration tools do
			if s = strings.TrimSpace(s); s != "" {
				_, err = db.ExecContext(t.Context(), s)
				must(t, err)
			}
		}
		must(t, d.Renew(t.Context(), r.Hold(g.Token), time.Minute))
		if n := count(t, db, prefix+"_queues"); n != 1 {
			t.Errorf("the view has %d rows, want 1", n)
		}
	})
}

// documented returns the statements of the package comment that start with begin.
func documented(t *testing.T, begin string) (all []string) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	must(t, err)
	for line := range strings.SplitSeq(string(doc), "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "//"))
		if strings.HasPrefix(line, begin) {
			all = append(all, strings.TrimSuffix(line, ";"))
		}
	}
	return all
}
