package postgres_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// pgbouncer starts a pooler in transaction mode in front of srv, and returns its URL.
func pgbouncer(t *testing.T, srv *testbed.Server) string {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if _, err = os.Stat("/usr/sbin/pgbouncer"); err != nil {
			testbed.Lacks(t, "no pgbouncer: apt-get install pgbouncer")
		}
		bin = "/usr/sbin/pgbouncer"
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		ok(t, os.Chmod(d, 0o755)) //nolint:gosec // its user passes through
	}
	to, err := pgx.ParseConfig(srv.URL())
	ok(t, err)
	listen := testbed.Port(t)
	ini, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "users.txt")
	ok(t, os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", to.User, to.Password), 0o644)) //nolint:gosec // of a test server
	ok(t, os.WriteFile(ini, fmt.Appendf(nil, `[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
server_round_robin = 1
`, to.Host, to.Port, listen, users), 0o644)) //nolint:gosec // no secret
	args := []string{ini}
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "postgres"}, args...)
	}
	cmd := exec.Command(bin, args...)
	var log strings.Builder
	cmd.Stderr = &log
	ok(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	addr := fmt.Sprintf("127.0.0.1:%d", listen)
	waitFor(t, "pgbouncer answers", func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	u, err := url.Parse(srv.URL())
	ok(t, err)
	u.Host = addr
	return u.String()
}

// Behind a pooler in transaction mode every statement may be executed in another session of the server:
// prepared statements come and go, and LISTEN does not work.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	at := pgbouncer(t, srv)
	prefix := unique()
	var ls []*locker.Client
	for range 4 {
		p := newPool(t, at, func(c *pgxpool.Config) { c.MaxConns = 4 })
		d, err := postgres.New(p, postgres.WithPrefix(prefix))
		ok(t, err)
		t.Cleanup(func() { ok(t, d.Close()) })
		ls = append(ls, newLocker(t, d))
	}
	began := time.Now()
	contend(t, ls, 20)
	t.Logf("a hand-off took %v in the mean", (time.Since(began) / 80).Round(time.Microsecond))

	// By URL, as the package comment recommends for production.
	byURL, err := postgres.Open(t.Context(), at+"&listen=false&create=false&pool_size=2&prefix="+prefix)
	ok(t, err)
	t.Cleanup(func() { ok(t, byURL.Close()) })
	ok(t, byURL.Ping(t.Context()))
	var renewed renewals
	ls[0], renewed = newRenewing(t, byURL)

	// A ticket that waits for long, while others come and go.
	k, err := ls[0].Acquire(t.Context(), "long", locker.WithTTL(6*time.Second))
	ok(t, err)
	w := async(t, ls[1], "long", locker.WithTTL(3*time.Second))
	queued(t, ls[2], "long", 2)
	time.Sleep(postgres.DefaultLiveness + time.Second)
	renewed.await(t, k)
	var next *locker.Lock
	took := testbed.Elapsed(func() {
		ok(t, k.Release(t.Context()))
		next = got(t, w)
	})
	if took > time.Second {
		t.Errorf("a hand-off to one who waited for long took %v", took)
	}
	ok(t, next.Release(t.Context()))
}
