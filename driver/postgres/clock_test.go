package postgres_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A steppedServer is a PostgreSQL whose wall clock a test sets, by libfaketime.
type steppedServer struct {
	t         *testing.T
	url, file string
}

// newSteppedServer copies the data of a stopped server of the testbed, so that it can
// be started with another clock.
func newSteppedServer(t *testing.T) *steppedServer {
	t.Helper()
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(libs) == 0 {
		testbed.Lacks(t, "no libfaketime: apt-get install libfaketime")
	}
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(bins) == 0 {
		testbed.Lacks(t, "no server of Debian: apt-get install postgresql")
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		ok(t, os.Chmod(d, 0o755)) //nolint:gosec // the server's user passes through
	}
	s := &steppedServer{t: t, file: filepath.Join(dir, "clock")}
	s.step(0)
	bin, data, port := filepath.Dir(bins[len(bins)-1]), filepath.Join(dir, "data"), testbed.Port(t)
	run := func(env []string, args ...string) *exec.Cmd {
		if os.Geteuid() == 0 {
			ok(t, exec.Command("install", "-d", "-o", "postgres", "-m", "700", data).Run())
			args = append([]string{"runuser", "-u", "postgres", "--", "env"}, append(env, args...)...)
		} else {
			args = append([]string{"env"}, append(env, args...)...)
		}
		return exec.Command(args[0], args[1:]...)
	}
	out, err := run(nil, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	cmd := run([]string{
		"LD_PRELOAD=" + libs[0], "FAKETIME_TIMESTAMP_FILE=" + s.file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}, filepath.Join(bin, "postgres"), "-D", data, "-p", fmt.Sprint(port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories="+data, "-c", "fsync=off")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	ok(t, cmd.Start())
	t.Cleanup(func() {
		pid, _ := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		first, _, _ := strings.Cut(string(pid), "\n")
		_ = exec.Command("kill", "-QUIT", first).Run()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	s.url = "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	waitFor(t, "the server answers", func() bool {
		c, err := pgx.Connect(t.Context(), s.url)
		if err == nil {
			_ = c.Close(t.Context())
		}
		return err == nil
	})
	return s
}

// step sets the server's clock so far from the real one.
func (s *steppedServer) step(by time.Duration) {
	s.t.Helper()
	ok(s.t, os.WriteFile(s.file+".new", fmt.Appendf(nil, "%+.0f\n", by.Seconds()), 0o644)) //nolint:gosec // the server reads it
	ok(s.t, os.Rename(s.file+".new", s.file))
}

// Leases are measured by the server's wall clock. A step forward ends them early, and their holders
// are notified by the next renewal. A step backward lengthens them, and nobody else is granted the
// lock meanwhile. Acquisitions and tokens go on.
func TestClockOfTheServerIsSet(t *testing.T) {
	t.Parallel()
	s := newSteppedServer(t)
	d, p := newDriver(t, s.url)
	l := newLocker(t, d)
	clock := func() time.Duration {
		t.Helper()
		var at time.Time
		ok(t, p.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&at))
		return time.Until(at).Round(time.Second)
	}
	held, err := l.Acquire(t.Context(), "a", locker.WithTTL(30*time.Second))
	ok(t, err)

	s.step(-10 * time.Minute)
	if at := clock(); at > -9*time.Minute {
		testbed.Lacks(t, fmt.Sprintf("the server's clock is %v from ours: libfaketime does not work here", at))
	}
	ok(t, held.Extend(t.Context(), 30*time.Second)) // changes nothing: the lease is longer already
	_, err = l.TryAcquire(t.Context(), "a")
	is(t, err, locker.ErrNotAcquired)
	other, err := l.Acquire(t.Context(), "b", locker.WithTTL(30*time.Second))
	ok(t, err)
	if other.Token() <= held.Token() {
		t.Errorf("token %d after %d", other.Token(), held.Token())
	}
	w := async(t, l, "b")
	queued(t, l, "b", 2)

	s.step(10 * time.Minute)
	if at := clock(); at < 9*time.Minute {
		t.Fatalf("the server's clock is %v from ours", at)
	}
	next := got(t, w) // the lease of other is over by that clock
	is(t, other.Extend(t.Context(), time.Minute), locker.ErrLost)
	is(t, held.Extend(t.Context(), time.Minute), locker.ErrLost)
	if next.Token() <= other.Token() {
		t.Errorf("token %d after %d", next.Token(), other.Token())
	}
	ok(t, next.Extend(t.Context(), time.Minute))
	ok(t, next.Release(t.Context()))
	r := driver.Request{Name: "c", ID: "c", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	s.step(0)
	if _, err := d.Acquire(t.Context(), driver.Request{Name: "c", ID: "d", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("beside a holder: %v", err)
	}
	ok(t, d.Renew(t.Context(), r.Hold(g.Token), time.Minute))
	ok(t, d.Release(t.Context(), r.Hold(g.Token)))
}
