package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A shownTicket is a row of the view for people.
type shownTicket struct {
	Name, State, Mode, Owner, Note, ID string
	Position, Token                    int64
	Age                                time.Duration
	Remaining                          *time.Duration
}

func showQueues(t *testing.T, p *pgxpool.Pool, prefix string) (all []shownTicket) {
	t.Helper()
	rows, err := p.Query(t.Context(), "SELECT * FROM "+prefix+"_queues")
	ok(t, err)
	all, err = pgx.CollectRows(rows, pgx.RowToStructByName[shownTicket])
	ok(t, err)
	return all
}

// mode is what the view shows.
func mode(k driver.Ticket) string {
	switch {
	case !k.Shared:
		return "exclusive"
	case k.Limit == 0:
		return "shared"
	}
	return fmt.Sprintf("shared, limit %d", k.Limit)
}

// The view shows what Inspect does.
func TestQueuesForPeople(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	defer func() { cancel(); waiters.Wait() }()
	hold := func(r driver.Request) {
		t.Helper()
		r.ID, r.TTL = unique(), 30*time.Second
		_, err := d.Acquire(ctx, r)
		ok(t, err)
	}
	wait := func(r driver.Request) {
		joined := make(chan struct{})
		r.ID, r.TTL, r.Wait, r.Joined = unique(), 30*time.Second, true, func() { close(joined) }
		waiters.Go(func() { _, _ = d.Acquire(ctx, r) })
		<-joined
	}
	hold(driver.Request{Name: "orders", Owner: "worker 1", Note: "nightly import"})
	wait(driver.Request{Name: "orders", Owner: "worker 2", Shared: true, Note: "reads"})
	wait(driver.Request{Name: "orders", Shared: true, Limit: 3})
	wait(driver.Request{Name: "orders"})
	hold(driver.Request{Name: "permits", Shared: true, Limit: 2})
	hold(driver.Request{Name: "permits", Shared: true, Limit: 2})
	hold(driver.Request{Name: "readers", Shared: true})
	_, err := d.Acquire(ctx, driver.Request{Name: "expired", ID: unique(), TTL: 10 * time.Millisecond})
	ok(t, err)
	time.Sleep(20 * time.Millisecond)

	all := showQueues(t, p, prefix)
	byName := make(map[string][]shownTicket)
	for i, s := range all {
		byName[s.Name] = append(byName[s.Name], s)
		if i > 0 && all[i-1].Name > s.Name {
			t.Errorf("%s is listed after %s", s.Name, all[i-1].Name)
		}
	}
	names, err := d.List(t.Context())
	ok(t, err)
	if len(names) != len(byName) || len(names) != 3 {
		t.Errorf("%d names, and in the view %d", len(names), len(byName))
	}
	for _, name := range names {
		ts, err := d.Inspect(t.Context(), name)
		ok(t, err)
		if len(ts) != len(byName[name]) {
			t.Fatalf("%s: %d tickets, and in the view %d", name, len(ts), len(byName[name]))
		}
		for i, want := range ts {
			checkShown(t, byName[name][i], want, i)
		}
	}
}

func checkShown(t *testing.T, got shownTicket, want driver.Ticket, i int) {
	t.Helper()
	state := map[bool]string{true: "holder", false: "waiter"}[want.Held]
	if got.Position != int64(i+1) || got.State != state || got.Mode != mode(want) || got.Owner != want.Owner ||
		got.Note != want.Note || got.Token != int64(want.Token) || got.ID != want.ID { //nolint:gosec // of the database
		t.Errorf("the view has %+v, want %+v", got, want)
	}
	if age := time.Since(want.Since); got.Age < 0 || got.Age > age+50*time.Millisecond {
		t.Errorf("the age of %s is %v, want %v at most", got.Name, got.Age, age)
	}
	if (got.Remaining != nil) != want.Held {
		t.Errorf("remaining of %+v: %v", want, got.Remaining)
	} else if want.Held && (*got.Remaining < want.Remaining-time.Second || *got.Remaining > 31*time.Second) {
		t.Errorf("remaining of %s is %v, want %v", got.Name, *got.Remaining, want.Remaining)
	}
}

func TestNamesAreShownSafely(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	admin := newPool(t, srv.URL(), nil)
	for _, encoding := range []string{"UTF8", "LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			db := unique()
			_, err := admin.Exec(t.Context(), "CREATE DATABASE "+db+" ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0")
			ok(t, err)
			url := strings.Replace(srv.URL(), "/postgres?", "/"+db+"?", 1)
			d, err := postgres.Open(t.Context(), url)
			ok(t, err)
			t.Cleanup(func() { ok(t, d.Close()) })
			p := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = "UTF8" })
			want := make(map[string]string) // by ID
			for name, text := range sqltest.Shown(`\x`) {
				id := unique()
				_, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: id, TTL: time.Minute, Owner: name, Note: name})
				ok(t, err)
				if ascii := strings.IndexFunc(text, func(r rune) bool { return r > 127 }) < 0; !ascii && encoding != "UTF8" {
					text = sqltest.Hex(`\x`, name)
				}
				want[id] = text
			}
			for _, s := range showQueues(t, p, "locker") {
				if w := want[s.ID]; s.Name != w || s.Owner != w || s.Note != w {
					t.Errorf("shown as %q, %q, %q, want %q", s.Name, s.Owner, s.Note, w)
				}
				delete(want, s.ID)
			}
			if len(want) > 0 {
				t.Errorf("not shown: %v", want)
			}
		})
	}
}

// The view can be read in psql, and control characters do not reach the terminal.
func TestQueuesInPsql(t *testing.T) {
	t.Parallel()
	prefix := unique()
	url := testbed.SharedPostgres(t).URL()
	d, _ := newDriver(t, url, postgres.WithPrefix(prefix))
	_, err := d.Acquire(t.Context(), driver.Request{Name: "orders", ID: "1", TTL: time.Minute, Owner: "me", Note: "\x1b[2J"})
	ok(t, err)
	out := psql(t, url, "-c", "SELECT * FROM "+prefix+"_queues")
	if !strings.Contains(out, "orders |        1 | holder | exclusive | me    | \\x1b5b324a |") || strings.Contains(out, "\x1b") {
		t.Errorf("psql prints\n%q", out)
	}
}

// psql runs it, and returns what it prints.
func psql(t *testing.T, url string, args ...string) string {
	t.Helper()
	bin, err := exec.LookPath("psql")
	if err != nil {
		testbed.Lacks(t, "no psql: apt-get install postgresql-client")
	}
	cmd := exec.CommandContext(t.Context(), bin, append([]string{url, "-X", "-v", "ON_ERROR_STOP=1"}, args...)...)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c lock_timeout=10s")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return string(out)
}
