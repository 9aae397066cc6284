package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// If the tables vanish, a driver that has used them does not create them again: the locks in them may still be held.
func TestTablesThatVanish(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	// In the order in which a sweep takes the tables (one driver in ten sweeps with its first ticket): in another
	// order there may be a deadlock.
	_, err = p.Exec(t.Context(), strings.ReplaceAll("DROP VIEW PREFIX_queues; DROP TABLE PREFIX_processes, PREFIX_tickets; DROP SEQUENCE PREFIX_token",
		"PREFIX", prefix), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	for range 2 {
		var again driver.Grant
		took := testbed.Elapsed(func() {
			again, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: "2", TTL: time.Minute})
		})
		if err == nil {
			t.Fatalf("token %d was granted beside %d", again.Token, g.Token)
		}
		if !strings.Contains(err.Error(), "vanished") || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("the error is %v", err)
		}
		is(t, err, driver.ErrNoTicket)
		if took > 500*time.Millisecond {
			t.Errorf("the error took %v", took)
		}
		for what, err := range map[string]error{
			"renew":   d.Renew(t.Context(), r.Hold(g.Token), time.Minute),
			"release": d.Release(t.Context(), r.Hold(g.Token)),
			"ping":    ping(t.Context(), d),
		} {
			if err == nil || errors.Is(err, driver.ErrLost) {
				t.Errorf("%s: the error is %v", what, err)
			}
		}
	}
	var there bool
	ok(t, p.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL", prefix+"_tickets").Scan(&there))
	if there {
		t.Error("the tables were made anew")
	}
}

// If somebody drops what is there beside the table of tickets, the error says how to create it, and that does.
func TestPartsThatVanish(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	for _, part := range []string{"FUNCTION PREFIX_acquireVERSION", "FUNCTION PREFIX_renewVERSION", "TABLE PREFIX_processes CASCADE", "SEQUENCE PREFIX_token"} {
		prefix := unique()
		d, p := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
		ok(t, d.Ping(t.Context()))
		_, err := p.Exec(t.Context(), "DROP "+strings.NewReplacer("PREFIX", prefix, "VERSION", postgres.Version).Replace(part), pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
		if err = d.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "postgres.Schema") {
			t.Errorf("%s: the error is %v", part, err)
		}
		sql, err := postgres.Schema(postgres.WithPrefix(prefix))
		ok(t, err)
		_, err = p.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
		ok(t, d.Ping(t.Context()))
	}
}

func ping(ctx context.Context, d driver.Driver) error {
	p, is := d.(driver.Pinger)
	if !is {
		return errors.New("no Pinger")
	}
	return p.Ping(ctx)
}

// A missing right is reported at once, by Ping too, and no ticket is left.
func TestMissingRights(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	admin := newPool(t, srv.URL(), nil)
	user, prefix := unique(), unique()
	exec := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), strings.NewReplacer("USER", user, "PREFIX", prefix).Replace(sql), pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	sql, err := postgres.Schema(postgres.WithPrefix(prefix))
	ok(t, err)
	exec(sql)
	exec("CREATE ROLE USER LOGIN PASSWORD 'USER'")
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP OWNED BY "+user+"; DROP USER "+user, pgx.QueryExecModeSimpleProtocol)
	})
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = user, user })
	d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithLiveness(400*time.Millisecond))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	rights := []string{
		"SELECT, INSERT, UPDATE, DELETE ON PREFIX_tickets", "SELECT, INSERT, UPDATE, DELETE ON PREFIX_processes",
		"USAGE, SELECT, UPDATE ON SEQUENCE PREFIX_token",
	}
	for _, r := range rights {
		exec("GRANT " + r + " TO USER")
	}
	ok(t, ping(t.Context(), d))
	waitsWithout(t, d, func(verb, end string) { exec(verb + " UPDATE ON PREFIX_processes " + end + " USER") })
	for i, missing := range append(rights, "INSERT ON PREFIX_tickets", "UPDATE ON PREFIX_processes", "UPDATE ON SEQUENCE PREFIX_token") {
		exec("REVOKE " + missing + " FROM USER")
		var err error
		took := srv.Elapsed(func() { err = ping(t.Context(), d) })
		if postgres.Code(err) != "42501" || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("ping without %s: %v", missing, err)
		}
		if i < 2 {
			took += srv.Elapsed(func() {
				_, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: fmt.Sprint(i), TTL: time.Minute, Wait: true})
			})
			if i == 0 && postgres.Code(err) != "42501" {
				t.Errorf("acquire without %s: %v", missing, err)
			}
			if err != nil {
				is(t, err, driver.ErrNoTicket)
			}
		}
		if took > 200*time.Millisecond {
			t.Errorf("it took %v to say that %s is missing", took, missing)
		}
		exec("GRANT " + missing + " TO USER")
	}
}

// waitsWithout takes a right away while a driver waits: the wait goes on, and its error says what was refused.
func waitsWithout(t *testing.T, d *postgres.Driver, change func(verb, end string)) {
	t.Helper()
	g, err := d.Acquire(t.Context(), driver.Request{Name: "waits", ID: "held", TTL: time.Minute})
	ok(t, err)
	r := driver.Request{Name: "waits", ID: "waiter", TTL: time.Minute, Wait: true, Joined: func() { change("REVOKE", "FROM") }}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = d.Acquire(ctx, r)
	is(t, err, context.DeadlineExceeded)
	if postgres.Code(err) != "42501" {
		t.Errorf("the end of a wait whose heartbeats are refused: %v", err)
	}
	change("GRANT", "TO")
	ok(t, d.Release(t.Context(), driver.Request{Name: "waits", ID: "held"}.Hold(g.Token)))
	_ = d.Release(t.Context(), r.Hold(0))
}
