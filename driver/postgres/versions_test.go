package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// everyVerb returns the errors of the methods that a program may call first.
func everyVerb(t *testing.T, d *postgres.Driver) map[string]error {
	t.Helper()
	_, acquire := d.Acquire(t.Context(), driver.Request{Name: "a", ID: unique(), TTL: time.Minute})
	_, inspect := d.Inspect(t.Context(), "a")
	_, list := d.List(t.Context())
	return map[string]error{
		"acquire": acquire, "inspect": inspect, "list": list, "ping": d.Ping(t.Context()),
		"renew": d.Renew(t.Context(), driver.Hold{Name: "a", ID: "1", Token: 1}, time.Minute),
		"break": d.Break(t.Context(), "a", 1),
	}
}

// refusedBy checks that each error names the versions and says what to do.
func refusedBy(t *testing.T, d *postgres.Driver, versions ...string) {
	t.Helper()
	for verb, err := range everyVerb(t, d) {
		if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v, want an error about versions", verb, err)
			continue
		}
		for _, want := range append(versions, "postgres.Schema", "_tickets") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %q, want %q in it", verb, err, want)
			}
		}
	}
}

func countFunctions(t *testing.T, p *pgxpool.Pool, prefix, suffix string) (n int) {
	t.Helper()
	ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM pg_proc WHERE starts_with(proname, $1) AND right(proname, length($2)) = $2", prefix+"_", suffix).Scan(&n))
	return n
}

// The second of two versions of the schema, or of two texts of one version, is refused until the tables are
// upgraded, and then the first is. A lock that was held stays held meanwhile.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]postgres.Edition{
		"later": postgres.NewEdition("7", "0123abcd"), "same number": postgres.NewEdition(strings.Fields(postgres.Current.String())[0], "0123abcd"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, prefix := testbed.SharedPostgres(t), unique()
			old, p := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
			const ttl = 6 * time.Second // enough to open drivers on a busy machine
			held := driver.Request{Name: "a", ID: "held", TTL: ttl}
			g, err := old.Acquire(t.Context(), held)
			ok(t, err)
			var newer *postgres.Driver
			for _, opt := range []postgres.Option{postgres.WithoutCreate(), nil} {
				newer, _ = newDriver(t, srv.URL(), postgres.WithPrefix(prefix), opt)
				newer.Become(other)
				refusedBy(t, newer, postgres.Current.String(), other.String())
			}
			if n := countFunctions(t, p, prefix, "0123abcd"); n != 0 {
				t.Fatalf("%d functions were made beside those of another version", n)
			}
			renewed := time.Now()
			ok(t, old.Renew(t.Context(), held.Hold(g.Token), ttl))
			for range 2 { // the second run changes nothing
				_, err = p.Exec(t.Context(), newer.SchemaText(), pgx.QueryExecModeSimpleProtocol)
				ok(t, err)
			}
			if n := countFunctions(t, p, prefix, postgres.Version); n != 0 {
				t.Errorf("%d functions of the old version are left", n)
			}
			refusedBy(t, old, postgres.Current.String(), other.String())
			next := driver.Request{Name: "a", ID: "next", TTL: time.Minute}
			for {
				g2, err := newer.Acquire(t.Context(), next)
				if err == nil {
					if d := time.Since(renewed); d < ttl || g2.Token <= g.Token {
						t.Errorf("granted token %d after token %d, and %v after a renewal for %v", g2.Token, g.Token, d, ttl)
					}
					break
				}
				is(t, err, driver.ErrNotAcquired)
				time.Sleep(20 * time.Millisecond)
			}
			ok(t, newer.Ping(t.Context()))
		})
	}
}

// Tables of which no comment says the version are upgraded.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	const old = "3_0123abcd"
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ok(t, d.Create(t.Context(), nil))
	_, err := p.Exec(t.Context(), strings.NewReplacer("PREFIX", prefix, "SUFFIX", postgres.Version, "OLD", old).Replace(`DO $$
		DECLARE f record; BEGIN
			FOR f IN SELECT oid::regprocedure AS f, proname FROM pg_proc WHERE starts_with(proname, 'PREFIX_') LOOP
				EXECUTE 'ALTER FUNCTION ' || f.f || ' RENAME TO ' || replace(f.proname, 'SUFFIX', 'OLD');
			END LOOP;
			COMMENT ON TABLE PREFIX_tickets IS NULL;
		END $$`), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	fresh, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	refusedBy(t, fresh, "unknown", postgres.Current.String())
	_, err = p.Exec(t.Context(), d.SchemaText(), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	if n := countFunctions(t, p, prefix, old); n != 0 {
		t.Errorf("%d old functions are left", n)
	}
	l := newLocker(t, fresh)
	k, err := l.Acquire(t.Context(), "a", locker.WithoutRenewal())
	ok(t, err)
	ok(t, k.Release(t.Context()))
}

// The SQL of one prefix drops no function of another.
func TestSchemaLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	srv, prefix := testbed.SharedPostgres(t), unique()
	one, p := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	two, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix+"_x"))
	for _, d := range []*postgres.Driver{one, two} {
		ok(t, d.Create(t.Context(), nil))
	}
	_, err := p.Exec(t.Context(), "CREATE FUNCTION "+prefix+"_acquire() RETURNS void LANGUAGE sql AS ''")
	ok(t, err)
	before := countFunctions(t, p, prefix, "")
	third, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	third.Become(postgres.NewEdition("77", "77777777"))
	_, err = p.Exec(t.Context(), third.SchemaText(), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	if after := countFunctions(t, p, prefix, ""); after != before {
		t.Errorf("%d functions, and %d before", after, before)
	}
	ok(t, two.Ping(t.Context()))
}
