package command_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

type pingLine struct {
	Store    string  `json:"store"`
	Up       bool    `json:"up"`
	Version  string  `json:"version"`
	Rights   bool    `json:"rights"`
	First    float64 `json:"first_seconds"`
	Cycles   int     `json:"cycles"`
	CycleP50 float64 `json:"cycle_p50_seconds"`
	CycleMax float64 `json:"cycle_max_seconds"`
}

func TestPing(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		r := on(t, url, "ping").Run()
		has(t, r, r.Out, "store    ", "answers  yes", "version  ", "rights   yes", "(median of 10")
		if r.Code != 0 || r.ErrOut != "" {
			t.Error(r)
		}
		r = on(t, url, "ping", "--json", "--cycles", "3").Run()
		p := decode[pingLine](t, r.Out)[0]
		if r.Code != 0 || !p.Up || !p.Rights || p.Cycles != 3 || p.CycleP50 <= 0 || p.CycleMax < p.CycleP50 || p.First <= 0 ||
			!strings.Contains(p.Version, ".") || strings.Contains(p.Store, "?") {
			t.Error(r)
		}
		r = on(t, url, "ping", "--cycles", "0").Run()
		if r.Code != 0 || strings.Contains(r.Out, "cycle") {
			t.Error(r)
		}
		if r := on(t, url, "list").Run(); r.Out != "" {
			t.Error("something stayed behind: ", r)
		}
		for _, args := range [][]string{{"--cycles", "-1"}, {"x"}} {
			if r := on(t, url, append([]string{"ping"}, args...)...).Run(); r.Code != command.ExitUsage {
				t.Error(r)
			}
		}
	})
}

// A script that keeps the output of ping gets an error if it was not written.
func TestPingNotWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	c := on(t, "memory://", "ping")
	c.Stdout = full
	if r := c.Run(); r.Code != command.ExitFailure || !strings.Contains(r.ErrOut, "no space left") {
		t.Error(r)
	}
}

func TestPingDown(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	srv.Kill()
	r := on(t, srv.URL(), "ping").Run()
	has(t, r, r.Out, "answers  no\n")
	if r.Code != command.ExitUnavailable || strings.Contains(r.Out, "rights") || !strings.HasPrefix(r.ErrOut, "locker: ping") {
		t.Error(r)
	}
	for _, url := range []string{srv.URL(), "etcd://ann:s3cret@" + srv.Addr()} { // etcd's client logs in when the URL is opened
		r = on(t, url, "ping", "--json").Run()
		if p := decode[pingLine](t, r.Out+"{}")[0]; r.Code != command.ExitUnavailable || p.Store == "" || p.Up || p.Rights {
			t.Error(r)
		}
	}
	srv.Start()
	srv.Pause() // it accepts connections and answers nothing
	defer srv.Resume()
	if r := on(t, srv.URL(), "ping").Run(); r.Code != command.ExitUnavailable || r.Took > 15*time.Second {
		t.Error(r)
	}
}

// A store that refuses the user when it is opened, as etcd does, answers, and the rights do not suffice.
func TestPingRefusedLogin(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{srv.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.UserAdd(t.Context(), "root", "secret")
	if err == nil {
		_, err = c.UserGrantRole(t.Context(), "root", "root")
	}
	if err == nil {
		_, err = c.AuthEnable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	url := "etcd://root:wrong@" + srv.Addr()
	r := on(t, url, "ping", "--json").Run()
	if p := decode[pingLine](t, r.Out+"{}")[0]; r.Code != command.ExitRefused || p.Store == "" || !p.Up || p.Rights {
		t.Error(r)
	}
	if r := on(t, url, "run", "x", "--", "true").Run(); r.Code != command.ExitRefused {
		t.Error(r)
	}
	if r := on(t, "etcd://root:secret@"+srv.Addr(), "ping").Run(); r.Code != 0 {
		t.Error(r)
	}
}

// A ping that was ended has found out nothing, and says so: neither that the store is down nor
// that rights are missing.
func TestPingInterrupted(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
	defer c.Close()
	cmd := on(t, srv.URL(), "ping", "--cycles", "100000000").Start()
	commandtest.Eventually(t, "it works", func() bool { return len(c.Keys(t.Context(), "*").Val()) > 0 })
	cmd.Signal(os.Interrupt)
	if r := cmd.Wait(); r.Code != 128+2 || r.Out+r.ErrOut != "" {
		t.Error(r)
	}
}

func TestPingRedisUsers(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
	defer c.Close()
	for _, user := range [][]any{
		{"ACL", "SETUSER", "weak", "on", ">pass", "resetkeys", "resetchannels", "~other:*", "+@all"},
		{"ACL", "SETUSER", "reader", "on", ">pass", "~*", "&*", "-@all", "+@read", "+@connection"},
	} {
		if err := c.Do(t.Context(), user...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for user, version := range map[string]string{"weak:pass": "Redis", "reader:pass": "Redis", "weak:wrong": "not reported", "no-such:pass": "not reported"} {
		r := on(t, "redis://"+user+"@"+srv.Addr(), "ping").Run()
		has(t, r, r.Out, "answers  yes", "version  "+version, "rights   no\n")
		if r.Code != command.ExitRefused || strings.Contains(r.ErrOut, "pass@") || !strings.Contains(r.ErrOut, "   try: user, password and rights") {
			t.Error(r)
		}
		verbs := [][]string{{"bench"}, {"conformance"}}
		if version == "not reported" { // the other users may use verbs that only read
			verbs = append(verbs, []string{"list"}, []string{"watch"}, []string{"inspect", "a"}, []string{"break", "--yes", "a"})
		}
		for _, verb := range verbs {
			if r := on(t, "redis://"+user+"@"+srv.Addr(), verb...).Run(); r.Code != command.ExitRefused || r.Out != "" {
				t.Error(r)
			}
		}
	}
}

// TestPingPostgresRoles is about a role that may not create the tables, and one that
// may not read them.
func TestPingPostgresRoles(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	admin := postgresOf(t, srv.URL())
	for _, sql := range []string{
		"CREATE SCHEMA pinged", "CREATE ROLE ping_user LOGIN", "CREATE ROLE ping_stranger LOGIN",
		"GRANT USAGE ON SCHEMA pinged TO ping_user, ping_stranger",
	} {
		exec(t, admin, sql)
	}
	address := func(user string) string {
		u, err := url.Parse(srv.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(user)
		q := u.Query()
		q.Set("schema", "pinged")
		u.RawQuery = q.Encode()
		return u.String()
	}
	refused := func(user, want string) {
		t.Helper()
		r := on(t, address(user), "ping").Run()
		has(t, r, r.Out, "version  PostgreSQL ", "rights   no\n")
		if r.Code != command.ExitRefused || !strings.Contains(r.ErrOut, want) {
			t.Errorf("want %q: %v", want, r)
		}
	}
	refused("ping_user", "tables of locker are missing")

	r := on(t, "", "schema", "postgres", "--schema", "pinged").Run()
	if r.Code != 0 {
		t.Fatal(r)
	}
	exec(t, admin, r.Out)
	for _, what := range []string{
		"SELECT, INSERT, UPDATE, DELETE ON ALL TABLES", "USAGE, SELECT, UPDATE ON ALL SEQUENCES", "EXECUTE ON ALL FUNCTIONS",
	} {
		exec(t, admin, fmt.Sprintf("GRANT %s IN SCHEMA pinged TO ping_user", what))
	}
	if r := on(t, address("ping_user"), "ping").Run(); r.Code != 0 {
		t.Error(r)
	}
	refused("ping_stranger", "permission denied")
	for _, verb := range [][]string{{"bench"}, {"list"}, {"watch"}, {"inspect", "a"}, {"break", "--yes", "a"}} {
		r := on(t, address("ping_stranger"), verb...).Run()
		if r.Code != command.ExitRefused || r.Out != "" || !strings.Contains(r.ErrOut, "permission denied") {
			t.Error(r)
		}
	}
}

// postgresOf is a connection for the test itself.
func postgresOf(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}

// exec runs SQL, of several statements too.
func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%v, of %.80s", err, sql)
	}
}
