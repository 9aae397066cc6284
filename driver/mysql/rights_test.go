package mysql_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// The rights that the package comment lists suffice, and each of them is needed: Ping names what is missing.
func TestDocumentedRights(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		root := connect(t, srv, "?multiStatements=true")
		as := configOf(t, srv.URL())
		_, _, prefix := fresh(t, root)
		user := fmt.Sprintf("u%d", time.Now().UnixNano()%1e9)
		named := strings.NewReplacer("'locks'", "'"+user+"'", "'ops'", "'ops"+user+"'", "app.locker_", as.DBName+"."+prefix+"_", "app.*", as.DBName+".*").Replace
		exec := func(sql string) {
			t.Helper()
			_, err := root.ExecContext(t.Context(), named(sql))
			must(t, err)
		}
		schema, err := mysql.Schema(mysql.WithPrefix(prefix))
		must(t, err)
		exec(schema)
		exec("CREATE USER 'locks'@'%' IDENTIFIED BY 's3cret'; CREATE USER 'ops'@'%' IDENTIFIED BY 's3cret'")
		t.Cleanup(func() { _, _ = root.Exec(named("DROP USER 'locks'@'%', 'ops'@'%'")) })
		grants := documented(t, "GRANT ")
		for _, g := range grants {
			exec(g)
		}
		address := fmt.Sprintf("mysql://%s:s3cret@%s/%s?create=false", user, as.Addr, as.DBName)
		d, err := openURL(t.Context(), address, prefix)
		must(t, err)
		t.Cleanup(func() { must(t, d.Close()) })
		ping := d.(driver.Pinger).Ping
		must(t, ping(t.Context()))
		revoked := 0
		for _, g := range grants {
			m := regexp.MustCompile(`^GRANT (.*) ON app\.locker_(\w+) TO 'locks'`).FindStringSubmatch(g)
			if m == nil {
				continue // of other users
			}
			for right := range strings.SplitSeq(m[1], ", ") {
				on := right + " ON app.locker_" + m[2]
				exec("REVOKE " + on + " FROM 'locks'@'%'")
				err := ping(t.Context())
				if err == nil || !strings.Contains(err.Error(), right+" command denied") || !strings.Contains(err.Error(), prefix+"_"+m[2]) {
					t.Errorf("without %s: %v", on, err)
				}
				exec("GRANT " + on + " TO 'locks'@'%'")
				revoked++
			}
		}
		if revoked != 4+4+3+4 {
			t.Errorf("%d rights were revoked", revoked)
		}
		exec("REVOKE EXECUTE ON app.* FROM 'locks'@'%'")
		other, err := openURL(t.Context(), address, prefix) // a connection keeps the rights on its database
		must(t, err)
		t.Cleanup(func() { must(t, other.Close()) })
		_, err = other.Acquire(t.Context(), driver.Request{Name: "a", ID: "a", TTL: time.Minute})
		for _, err := range []error{other.(driver.Pinger).Ping(t.Context()), err} {
			if err == nil || !strings.Contains(err.Error(), "GRANT EXECUTE") {
				t.Errorf("without EXECUTE: %v", err)
			}
		}
		exec("GRANT EXECUTE ON app.* TO 'locks'@'%'")
		must(t, ping(t.Context()))
		conformQuickly(t, conformance.Harness{Open: func(ctx context.Context) (driver.Driver, error) { return openURL(ctx, address, prefix) }})
		guardWithFewRights(t, address, prefix)
		ops := connectTo(t, fmt.Sprintf("mysql://ops%s:s3cret@%s/%s", user, as.Addr, as.DBName), "")
		count(t, ops, prefix+"_queues")
	})
}

// conformQuickly runs some cases of the suite.
func conformQuickly(t *testing.T, h conformance.Harness) {
	t.Helper()
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
					must(t, c.Run(t.Context(), h))
				})
				delete(quick, c.String())
			}
		}
	})
	if len(quick) > 0 {
		t.Errorf("no such cases: %v", quick)
	}
}

// guardWithFewRights ties a transaction to a lock, makes one that is a lock, and sweeps.
func guardWithFewRights(t *testing.T, address, prefix string) {
	t.Helper()
	db := connectTo(t, address, "")
	l, d := join(t, db, prefix, mysql.WithoutCreate())
	k := take(t, l, "guarded")
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, d.Guard(t.Context(), tx, k))
	must(t, d.AcquireTx(t.Context(), tx, "transaction"))
	must(t, tx.Commit())
	must(t, k.Release(t.Context()))
	must(t, d.Sweep(t.Context()))
}
