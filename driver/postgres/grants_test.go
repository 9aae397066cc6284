package postgres_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// documented returns the statements of the package comment that start with begin.
func documented(t *testing.T, begin string) (all []string) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	ok(t, err)
	for line := range strings.SplitSeq(string(doc), "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "//"))
		if strings.HasPrefix(line, begin) {
			all = append(all, strings.TrimSuffix(strings.TrimSpace(line), ";"))
		}
	}
	return all
}

// A production is a database as the package comment wants it in production: the tables in a
// schema of their own, made by a DBA, and a role with the documented rights and no others.
type production struct {
	t                *testing.T
	admin            *pgxpool.Pool
	schema, role, ro string
	url              string // as that role
}

func newProduction(t *testing.T) *production {
	srv := testbed.SharedPostgres(t)
	p := &production{t: t, admin: newPool(t, srv.URL(), nil), schema: unique(), role: unique(), ro: unique()}
	p.exec("CREATE ROLE app LOGIN PASSWORD 's3cret'; CREATE ROLE ops")
	t.Cleanup(func() {
		_, _ = p.admin.Exec(context.Background(), p.named("DROP SCHEMA locks CASCADE; DROP OWNED BY app; DROP USER app; DROP OWNED BY ops; DROP ROLE ops"), pgx.QueryExecModeSimpleProtocol)
	})
	sql, err := postgres.Schema(postgres.WithSchema(p.schema))
	ok(t, err)
	p.exec(sql)
	p.exec("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA locks FROM PUBLIC") // as careful DBAs do by default
	p.url = strings.Replace(srv.URL(), "postgres@", p.role+":s3cret@", 1) + "&create=false&schema=" + p.schema
	return p
}

// named puts the names of this production into a documented statement.
func (p *production) named(sql string) string {
	for from, to := range map[string]string{`\bapp\b`: p.role, `\bops\b`: p.ro, `\blocks\b`: p.schema} {
		sql = regexp.MustCompile(from).ReplaceAllString(sql, to)
	}
	return sql
}

func (p *production) exec(sql string) {
	p.t.Helper()
	_, err := p.admin.Exec(p.t.Context(), p.named(sql), pgx.QueryExecModeSimpleProtocol)
	ok(p.t, err)
}

func (p *production) open(ctx context.Context) (driver.Driver, error) {
	return postgres.Open(ctx, p.url)
}

// The rights that the package comment lists suffice, and each of them is needed: Ping names
// what is missing.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	p := newProduction(t)
	grants := documented(t, "GRANT ")
	if len(grants) < 4 {
		t.Fatalf("the documented grants are %q", grants)
	}
	for _, g := range grants {
		p.exec(g)
	}
	d, err := p.open(t.Context())
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	ok(t, ping(t.Context(), d))

	revoked := 0
	for _, g := range grants {
		if strings.HasSuffix(g, " ops") {
			continue
		}
		for _, one := range eachRight(g) {
			right, object := one[0], one[1]
			t.Log(right, "on", object)
			p.exec("REVOKE " + right + " ON " + object + " FROM app")
			err := ping(t.Context(), d)
			if postgres.Code(err) != "42501" || !strings.Contains(err.Error(), right+" on ") || !strings.Contains(err.Error(), missingName(p, object)) {
				t.Errorf("without %s on %s: %v", right, object, err)
			}
			p.exec("GRANT " + right + " ON " + object + " TO app")
			revoked++
		}
	}
	if revoked != 1+8+2+1 {
		t.Errorf("%d rights were revoked", revoked)
	}
	ok(t, ping(t.Context(), d))
}

// eachRight cuts a GRANT into rights and objects.
func eachRight(grant string) (all [][2]string) {
	m := regexp.MustCompile(`^GRANT (.*) ON (.*) TO`).FindStringSubmatch(grant)
	for right := range strings.SplitSeq(m[1], ", ") {
		for object := range strings.SplitSeq(m[2], ", ") {
			all = append(all, [2]string{right, object})
		}
	}
	return all
}

// missingName is the name of an object that the error has to contain.
func missingName(p *production, object string) string {
	words := strings.Fields(p.named(object))
	last := words[len(words)-1]
	return last[strings.LastIndex(last, ".")+1:]
}

// A role with these rights does all that locks need.
func TestConformanceWithDocumentedRights(t *testing.T) {
	t.Parallel()
	p := newProduction(t)
	for _, g := range documented(t, "GRANT ") {
		p.exec(g)
	}
	h := conformance.Harness{Open: p.open}
	quick := make(map[string]bool)
	for name := range strings.FieldsSeq(`exclusion/mutex exclusion/queue-obeys-rule exclusion/readers-and-writers exclusion/permits
		fairness/first-come-first-served expiry/crashed-holder
		fencing/after-waiting inspect/list inspect/queue loss/break-waiter options/group ownership/renew-never-shortens`) {
		quick[name] = true
	}
	t.Run("cases", func(t *testing.T) {
		for _, c := range conformance.Cases() {
			if quick[c.String()] {
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					ok(t, c.Run(t.Context(), h))
				})
				delete(quick, c.String())
			}
		}
	})
	if len(quick) > 0 {
		t.Errorf("no such cases: %v", quick)
	}

	// A role that may only read the view can read it.
	_, err := p.admin.Exec(t.Context(), "SET ROLE "+p.ro+"; SELECT * FROM "+p.schema+".locker_queues; RESET ROLE", pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	// Without the tables a program gets an error that says what to do, and makes none.
	p.exec("DROP SCHEMA locks CASCADE; CREATE SCHEMA locks; GRANT USAGE ON SCHEMA locks TO app")
	d, err := p.open(t.Context())
	ok(t, err)
	defer d.Close()
	_, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "postgres.Schema") {
		t.Errorf("without tables: %v", err)
	}
}

// The SQL for a DBA can be run by psql -1, by an Exec, and by a migration that is one transaction,
// repeatedly, while the locks are in use, and blocks nobody.
func TestSchemaSQL(t *testing.T) {
	t.Parallel()
	url := testbed.SharedPostgres(t).URL()
	schema := unique()
	sql, err := postgres.Schema(postgres.WithSchema(schema))
	ok(t, err)
	if control := regexp.MustCompile(`(?im)^\s*(BEGIN|START TRANSACTION|COMMIT|END|ROLLBACK)\s*;`).FindString(sql); control != "" {
		t.Errorf("it has %q", control)
	}
	file := t.TempDir() + "/schema.sql"
	ok(t, os.WriteFile(file, []byte(sql), 0o600))
	psql(t, url, "-q", "-1", "-f", file)
	d, err := postgres.Open(t.Context(), url+"&create=false&schema="+schema)
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	ok(t, d.Ping(t.Context()))
	r := driver.Request{Name: "a", ID: unique(), TTL: time.Minute}
	_, err = d.Acquire(t.Context(), r)
	ok(t, err)

	p := newPool(t, url, nil)
	busy := begin(t, p) // somebody writes
	_, err = busy.Exec(t.Context(), "UPDATE "+schema+".locker_tickets SET note = 'busy'")
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	psql(t, url, "-q", "-1", "-f", file)
	_, err = p.Exec(ctx, sql)
	ok(t, err)
	migration := begin(t, p) // which takes long
	_, err = migration.Exec(ctx, sql)
	ok(t, err)
	ok(t, busy.Rollback(ctx))
	g, err := d.Acquire(ctx, driver.Request{Name: "b", ID: unique(), TTL: time.Minute})
	ok(t, err)
	is(t, d.Renew(ctx, driver.Hold{Name: "b", ID: "x", Token: g.Token}, time.Minute), driver.ErrLost)
	_, err = d.Inspect(ctx, "b")
	ok(t, err)
	ok(t, migration.Commit(ctx))
	ok(t, d.Release(ctx, r.Hold(0)))
}
