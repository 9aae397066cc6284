package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue/sqltest"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// A shownTicket is a row of the view for people.
type shownTicket struct {
	Name, State, Mode, Owner, Note, ID, Age string
	Position, Token                         uint64
	Remaining                               *string
}

func showQueues(t *testing.T, db *sql.DB, prefix string) (all []shownTicket) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+prefix+"_queues")
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	if got := strings.Join(columns, " "); got != "name position state mode owner note age remaining token id" {
		t.Errorf("the columns are %s", got)
	}
	for rows.Next() {
		var s shownTicket
		must(t, rows.Scan(&s.Name, &s.Position, &s.State, &s.Mode, &s.Owner, &s.Note, &s.Age, &s.Remaining, &s.Token, &s.ID))
		all = append(all, s)
	}
	must(t, rows.Err())
	return all
}

// clockTime reads what the view shows: [days] hh:mm:ss.thousandths.
func clockTime(t *testing.T, s string) time.Duration {
	t.Helper()
	var days, h, m, sec, milli int
	rest := s
	if before, after, ok := strings.Cut(s, " days "); ok {
		_, err := fmt.Sscan(before, &days)
		must(t, err)
		rest = after
	}
	if _, err := fmt.Sscanf(rest, "%02d:%02d:%02d.%03d", &h, &m, &sec, &milli); err != nil || len(rest) != 12 {
		t.Errorf("%q is no time: %v", s, err)
	}
	return time.Duration(days*24+h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec)*time.Second + time.Duration(milli)*time.Millisecond
}

// The view shows what Inspect does.
func TestQueuesForPeople(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		defer func() { cancel(); waiters.Wait() }()
		tickets := 0
		hold := func(r driver.Request) {
			t.Helper()
			tickets++
			r.ID, r.TTL = fmt.Sprint("ticket-", tickets), 30*time.Second
			_, err := d.Acquire(ctx, r)
			must(t, err)
		}
		wait := func(r driver.Request) {
			joined := make(chan struct{})
			tickets++
			r.ID, r.TTL, r.Wait, r.Joined = fmt.Sprint("ticket-", tickets), 30*time.Second, true, func() { close(joined) }
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
		_, err := d.Acquire(ctx, driver.Request{Name: "expired", ID: "expired", TTL: 10 * time.Millisecond})
		must(t, err)
		time.Sleep(20 * time.Millisecond)

		byName := make(map[string][]shownTicket)
		for _, s := range showQueues(t, db, prefix) {
			byName[s.Name] = append(byName[s.Name], s)
		}
		names, err := d.List(t.Context())
		must(t, err)
		if len(names) != 3 || len(byName) != 3 {
			t.Errorf("%d names, and in the view %d", len(names), len(byName))
		}
		for _, name := range names {
			ts, err := d.Inspect(t.Context(), name)
			must(t, err)
			if len(ts) != len(byName[name]) {
				t.Fatalf("%s: %d tickets, and in the view %d", name, len(ts), len(byName[name]))
			}
			for i, want := range ts {
				checkShown(t, byName[name][i], want, i)
			}
		}
		_, err = db.ExecContext(t.Context(), "UPDATE "+prefix+"_tickets SET since = since - INTERVAL 40 DAY WHERE name = 'readers'")
		must(t, err)
		for _, s := range showQueues(t, db, prefix) {
			if age := clockTime(t, s.Age); s.Name == "readers" && (age < 40*24*time.Hour || age > 40*24*time.Hour+time.Minute) {
				t.Errorf("a lock that was held for 40 days is %s old", s.Age)
			}
		}
	})
}

func checkShown(t *testing.T, got shownTicket, want driver.Ticket, i int) {
	t.Helper()
	mode := "exclusive"
	if want.Shared {
		mode = "shared"
	}
	if want.Limit > 0 {
		mode = fmt.Sprintf("shared, limit %d", want.Limit)
	}
	state := map[bool]string{true: "holder", false: "waiter"}[want.Held]
	if got.Position != uint64(i+1) || got.State != state || got.Mode != mode || got.Owner != want.Owner || //nolint:gosec // few
		got.Note != want.Note || got.Token != want.Token || got.ID != want.ID {
		t.Errorf("the view has %+v, want %+v", got, want)
	}
	if age := clockTime(t, got.Age); age > time.Since(want.Since)+50*time.Millisecond {
		t.Errorf("the age of %s is %v, and it is from %v", got.Name, age, want.Since)
	}
	if (got.Remaining != nil) != want.Held {
		t.Errorf("remaining of %+v: %v", want, got.Remaining)
	} else if want.Held {
		if left := clockTime(t, *got.Remaining); left < want.Remaining-time.Millisecond || left > 30*time.Second {
			t.Errorf("remaining of %s is %v, want %v", got.Name, left, want.Remaining)
		}
	}
}

// The text of the view moves no cursor, whatever sessions the view was made and is read in.
func TestNamesAreShownSafely(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		for _, dsn := range []string{"?charset=utf8mb4", "?charset=latin1&sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT%27"} {
			db := connect(t, srv, dsn)
			_, d, prefix := fresh(t, db)
			want := make(map[string]string) // by ID
			for name, text := range sqltest.Shown("0x") {
				id := fmt.Sprint("ticket-", len(want))
				_, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: id, TTL: time.Minute, Owner: name, Note: name})
				must(t, err)
				want[id] = text
			}
			for _, s := range showQueues(t, connect(t, srv, "?charset=utf8mb4"), prefix) {
				if w := want[s.ID]; s.Name != w || s.Owner != w || s.Note != w {
					t.Errorf("shown as %q, %q, %q, want %q", s.Name, s.Owner, s.Note, w)
				}
				delete(want, s.ID)
			}
			if len(want) > 0 {
				t.Errorf("not shown: %v", want)
			}
		}
	})
}

// client runs the mysql client, and returns what it prints.
func client(t *testing.T, srv *testbed.Server, input string, args ...string) string {
	t.Helper()
	bin, err := exec.LookPath("mysql")
	if err != nil {
		testbed.Lacks(t, "no mysql: apt-get install mariadb-client")
	}
	c := configOf(t, srv.URL())
	host, port, _ := strings.Cut(c.Addr, ":")
	cmd := exec.CommandContext(t.Context(), bin, append([]string{
		"--no-defaults", "--protocol=tcp", "--host=" + host, "--port=" + port, "--user=" + c.User, "--default-character-set=utf8mb4",
	}, append(args, c.DBName)...)...)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+c.Passwd)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("mysql: %v\n%s", err, out)
	}
	return string(out)
}

func TestQueuesInTheClient(t *testing.T) {
	srv := testbed.SharedMariaDB(t)
	_, d, prefix := fresh(t, connect(t, srv, ""))
	_, err := d.Acquire(t.Context(), driver.Request{Name: "orders", ID: "1", TTL: time.Minute, Owner: "me", Note: "\x1b[2J"})
	must(t, err)
	out := client(t, srv, "", "--table", "--execute=SELECT * FROM "+prefix+"_queues")
	if !strings.Contains(out, "| orders |        1 | holder | exclusive | me    | 0x1b5b324a | 00:00:0") || strings.Contains(out, "\x1b") {
		t.Errorf("mysql prints\n%s", out)
	}
}

// To look at a database without tables creates none.
func TestLookingCreatesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, d, prefix := fresh(t, db)
		names, err := d.List(t.Context())
		must(t, err)
		queue, err := d.Inspect(t.Context(), "a")
		must(t, err)
		if len(names)+len(queue) != 0 {
			t.Errorf("found %q, %v", names, queue)
		}
		if err := d.Break(t.Context(), "a", 1<<40); !errors.Is(err, driver.ErrLost) {
			t.Errorf("break: %v", err)
		}
		var n int
		must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE '"+prefix+"%'").Scan(&n))
		if n != 0 {
			t.Errorf("%d tables were created", n)
		}
		_, none := join(t, db, prefix, mysql.WithoutCreate())
		if _, err := none.List(t.Context()); err == nil {
			t.Error("with create=false, missing tables are no error")
		}
		must(t, take(t, l, "a").Release(t.Context()))
	})
}
