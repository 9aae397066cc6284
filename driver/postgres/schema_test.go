package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestTwoExclusiveHoldersAreImpossible(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	_, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	for what, slot := range map[string]string{"its slot": "0", "a slot of its own": "token + 1"} {
		_, err = p.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s_tickets
			SELECT name, %s, token + 1, 'forged', process, queued, held, claim, shared, permits, ttl, since, expires_at, owner, note
			FROM %[1]s_tickets`, prefix, slot))
		if err == nil {
			t.Errorf("the schema took a second exclusive holder in %s", what)
		}
	}
}

func TestSchemaOnFirstUse(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	opts := []postgres.Option{postgres.WithSchema(`odd "schema`), postgres.WithPrefix(unique() + `'" ü`)}
	var group sync.WaitGroup
	for range 8 {
		d, _ := newDriver(t, srv.URL(), opts...)
		l := newLocker(t, d)
		group.Go(func() {
			k, err := l.Acquire(t.Context(), unique())
			if err != nil {
				t.Error(err)
				return
			}
			if err := k.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestSchemaByAnotherUser(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	admin := newPool(t, srv.URL(), nil)
	user, prefix := unique(), unique()
	exec := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	exec("CREATE USER " + user)
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP OWNED BY "+user+"; DROP USER "+user, pgx.QueryExecModeSimpleProtocol)
	})
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.ConnConfig.User = user })
	for _, opt := range []postgres.Option{nil, postgres.WithoutCreate()} {
		d, err := postgres.New(p, postgres.WithPrefix(prefix), opt)
		ok(t, err)
		_, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Second})
		if err == nil || !strings.Contains(err.Error(), "postgres.Schema") {
			t.Errorf("without tables: %v", err)
		}
		ok(t, d.Close())
	}
	sql, err := postgres.Schema(postgres.WithPrefix(prefix))
	ok(t, err)
	exec(sql)
	exec(sql) // again
	exec(fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE ON %[1]s_tickets, %[1]s_processes TO %[2]s;
		GRANT USAGE, SELECT, UPDATE ON SEQUENCE %[1]s_token TO %[2]s`, prefix, user))
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	w := async(t, l, "a")
	queued(t, l, "a", 2)
	ok(t, k.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
}

func TestSweep(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	for i := range 50 {
		_, err := d.Acquire(t.Context(), driver.Request{Name: fmt.Sprint(i), ID: fmt.Sprint("id-", i), TTL: 20 * time.Millisecond})
		ok(t, err)
	}
	count := func() (n int) {
		ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_tickets").Scan(&n))
		return n
	}
	if n := count(); n != 50 {
		t.Fatalf("%d rows of dead holders, want 50", n)
	}
	waitFor(t, "the sweep leaves nothing", func() bool {
		d.Sweep(t.Context())
		return count() == 0
	})
}
