//go:build unix

package command_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// What people of flock are used to: -n, -w with seconds, -E, -s.
func TestRunFlagsOfFlock(t *testing.T) {
	t.Parallel()
	env, _ := ownFile(t)
	holder := locked(t, env, []string{"a"}, shell("echo held; sleep 60")).Start()
	holder.WaitOut("held")
	if r := locked(t, env, []string{"-n", "-E", "9", "a"}, shell("echo never")).Run(); r.Code != 9 || r.Out+r.ErrOut != "" {
		t.Error(r)
	}
	if r := locked(t, env, []string{"-w", "1", "a"}, shell("echo never")).Run(); r.Code != command.ExitBusy || r.Took < time.Second {
		t.Error(r)
	}
	if r := locked(t, env, []string{"--wait", "0.5", "-s", "a"}, shell("echo never")).Run(); r.Code != command.ExitBusy {
		t.Error(r)
	}
	for _, wrong := range []string{"x", "", "1e99", "nan", "5 s"} {
		r := locked(t, env, []string{"a", "--wait=" + wrong}, shell("echo never")).Run()
		if r.Code != command.ExitUsage || !strings.Contains(r.ErrOut, "or a number of seconds") {
			t.Errorf("%q: %v", wrong, r)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	verb, flag := commandtest.Command(t, "version").Run(), commandtest.Command(t, "--version").Run()
	if first, _, _ := strings.Cut(verb.Out, "\n"); flag.Code != 0 || flag.Out != first+"\n" || !strings.HasPrefix(flag.Out, "locker ") {
		t.Errorf("%v\n%v", verb, flag)
	}
}

// Help, or a completion, that there is not is an error: a script would keep the output.
func TestUnknownHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"completion", "foo"}, {"completion", "bash", "foo"}, {"help", "foo"}, {"help", "run", "foo"}} {
		if r := commandtest.Command(t, args...).Run(); r.Code != command.ExitUsage || r.Out != "" || !strings.Contains(r.ErrOut, "foo") {
			t.Error(r)
		}
	}
	for _, args := range [][]string{{"completion"}, {"help", "run"}, {"help", "exit-codes"}, {"help", "completion", "bash"}} {
		if r := commandtest.Command(t, args...).Run(); r.Code != 0 || r.Out == "" {
			t.Error(r)
		}
	}
}

// A flag without a value, as from a variable of a shell that is not set, is not one that was left
// out: no other token or certificate is taken, no other table printed. A note may be empty, and an
// expression that all cases match.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	for flag, args := range map[string][]string{
		"owner": {"run", "--owner=", "a", "--", "true"}, "id": {"elect", "--id=", "--on-success=stop", "a", "--", "true"},
		"fence": {"schema", "postgres", "--fence="}, "prefix": {"schema", "mysql", "--prefix="}, "schema": {"schema", "postgres", "--schema="},
		"token-file": {"console", "--listen=-", "--token-file="}, "read-token-file": {"console", "--listen=-", "--read-token-file="},
		"tls-cert": {"console", "--listen=-", "--tls-cert=", "--tls-key="},
	} {
		r := on(t, "memory://", args...).Run()
		if r.Code != command.ExitUsage || r.Out != "" || !strings.Contains(r.ErrOut, "--"+flag+" is empty") {
			t.Error(r)
		}
	}
	for _, args := range [][]string{{"run", "--note=", "--wait=0", "a", "--", "true"}, {"conformance", "--list", "--case="}} {
		if r := on(t, "memory://", args...).Run(); r.Code != 0 {
			t.Error(r)
		}
	}
}

// A long name is shown whole, and leaves the other rows as they are.
func TestListLongName(t *testing.T) {
	t.Parallel()
	_, url := ownFile(t)
	c := client(t, url)
	long := strings.Repeat("x", 500)
	hold(t, c, "short", locker.WithOwner("me"))
	hold(t, c, long, locker.WithOwner("me"))
	r := on(t, url, "list").Run()
	has(t, r, r.Out, long+"  me ", "\nshort  me ")
}

// A server of another kind is not the store that answers.
func TestPingAnotherServer(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	addr := web.Listener.Addr().String()
	for _, url := range []string{
		"redis://" + addr, "memcached://" + addr, "consul://" + addr, "memcached://" + testbed.SharedRedis(t).Addr(),
	} {
		r := on(t, url, "ping").Run()
		has(t, r, r.Out, "answers  no\n")
		if r.Code != command.ExitUnavailable {
			t.Error(r)
		}
	}
}

// A job with a minimum hold that another machine has begun in this period is skipped in
// silence. One that nobody has begun since the last period is missed, and that is said.
func TestRunMissedPeriod(t *testing.T) {
	t.Parallel()
	env, _ := ownFile(t)
	holder := locked(t, env, []string{"job"}, shell("echo held; sleep 60")).Start()
	holder.WaitOut("held")
	job := func(hold string, flags ...string) commandtest.Result {
		return locked(t, env, append(flags, "job", "--try", "--on-busy=0", "--hold-at-least="+hold), shell("echo never")).Run()
	}
	if r := job("1h"); r.Code != 0 || r.Out+r.ErrOut != "" {
		t.Error(r)
	}
	if r := job("1h", "--verbose"); strings.Count(r.ErrOut, "locker: ") != 1 || !strings.Contains(r.ErrOut, "locker: busy: acquire") {
		t.Error(r)
	}
	time.Sleep(50 * time.Millisecond) // the lock is older than that
	r := job("1ms")
	if r.Code != 0 || r.Out != "" || strings.Count(r.ErrOut, "\n") != 1 {
		t.Error(r)
	}
	has(t, r, r.ErrOut, "job: this run is skipped", "held by", "(sh)")
	if r := job("1ms", "--quiet"); r.Code != 0 || r.ErrOut != "" {
		t.Error(r)
	}
}

// A leader whose terminal has gone starts no other command, and ends.
func TestElectEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	env, url := ownFile(t)
	file := filepath.Join(t.TempDir(), "starts")
	tty := commandtest.NewTerminal(t)
	cmd := candidate(t, env, []string{"--on-failure=restart", "--on-success=restart", "--delay=1ms"},
		shell(`echo start >> "$1"; while :; do sleep 0.02; done`, file))
	tty.Attach(cmd).Start()
	commandtest.Eventually(t, "the command runs", func() bool { text, _ := os.ReadFile(file); return len(text) > 0 })
	tty.Hangup()
	cmd.Wait()
	if text, _ := os.ReadFile(file); string(text) != "start\n" {
		t.Errorf("the commands that were started: %q", text)
	}
	if q := queue(t, client(t, url), t.Name()); len(q) > 0 {
		t.Errorf("the queue is %+v", q)
	}
}

// If locker alone is stopped, its guard ends the command and all that it has started before
// the store grants the lock to anybody else, though they do not heed SIGTERM.
func TestRunStopped(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		file := filepath.Join(t.TempDir(), "times")
		holder := locked(t, env, []string{t.Name(), "--ttl=8s"}, shell(tree, file)).Start()
		waitForWrites(t, file)
		holder.Signal(syscall.SIGSTOP)
		r := locked(t, env, []string{t.Name(), "--wait=45s"}, shell("date +%s%N")).Run()
		if r.Code != 0 {
			t.Fatal(r)
		}
		granted := time.Unix(0, number(t, r.Out))
		for _, suffix := range treeFiles {
			last := lastWrite(t, file+suffix)
			t.Logf("the process %q was dead %v before the next grant", suffix, granted.Sub(last))
			if !last.Before(granted) {
				t.Errorf("the process %q went on for %v after the next one was granted", suffix, last.Sub(granted))
			}
		}
		holder.Signal(syscall.SIGCONT)
		if r := holder.Wait(); r.Code != command.ExitLost {
			t.Error(r)
		}
	}, "consul", "zookeeper")
}

// An outage is no contention: whoever is queued when the store goes away, and gives up, has not
// been refused.
func TestRunWaitInAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start func(testing.TB, ...testbed.Option) *testbed.Server
		end   func(*testbed.Server)
		wait  string
	}{
		"redis, killed":    {testbed.Redis, (*testbed.Server).Kill, "3s"},
		"redis, silent":    {testbed.Redis, (*testbed.Server).Pause, "15s"},
		"postgres, killed": {testbed.Postgres, (*testbed.Server).Kill, "3s"},
		"postgres, silent": {testbed.Postgres, (*testbed.Server).Pause, "15s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := c.start(t, testbed.Faults())
			env := "LOCKER_URL=" + srv.URL()
			holder := locked(t, env, []string{t.Name()}, shell("echo held; sleep 60")).Start()
			holder.WaitOut("held")
			waiter := locked(t, env, []string{t.Name(), "--wait=" + c.wait, "--on-busy=0", "-v"}, shell("echo never")).Start()
			waiter.WaitErr("waiting for")
			c.end(srv)
			r := waiter.Wait()
			if strings.HasSuffix(name, "silent") {
				srv.Resume()
			}
			t.Log(r)
			if r.Code != command.ExitUnavailable || r.Out != "" {
				t.Error(r)
			}
		})
	}
}

// A minimum hold that is shorter than the lease ends when it is over.
func TestRunHoldIsNoLonger(t *testing.T) {
	t.Parallel()
	file, _ := ownFile(t)
	for name, env := range map[string]string{"sqlite": file, "redis": "LOCKER_URL=" + testbed.SharedRedis(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := locked(t, env, []string{t.Name(), "--hold-at-least=3s", "--ttl=60s"}, shell("date +%s%N")).Run(); r.Code != 0 {
				t.Fatal(r)
			}
			r := locked(t, env, []string{t.Name(), "--wait=20s"}, shell("true")).Run()
			if r.Code != 0 {
				t.Error(r)
			}
		})
	}
}

// A lock that was broken while the command ran was lost, also on a store that tells nobody, and
// where the command has ended before the next renewal.
func TestRunBrokenShortly(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		hold := []string{"--hold-at-least=20s"}
		if strings.Contains(env, "zookeeper") { // its leases are shorter: ErrUnsupported
			hold = nil
		}
		for i, flags := range [][]string{nil, hold} {
			name := fmt.Sprint(t.Name(), i, time.Now().UnixNano())
			holder := locked(t, env, append(flags, name), shell(`echo held; read line; exit 0`))
			in, err := holder.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			holder.Start()
			holder.WaitOut("held")
			if r := commandtest.Command(t, "break", "--yes", name).With(env).Run(); r.Code != 0 {
				t.Fatal(r)
			}
			in.Close()
			if r := holder.Wait(); r.Code != command.ExitLost || !strings.Contains(r.ErrOut, "the lock was lost while the command ran") {
				t.Errorf("%q: %v", flags, r)
			}
		}
	})
}

// Break removes what it has shown: not another holder that has come meanwhile, even one of
// another library, whose lock has no ticket.
func TestBreakAnotherLibrary(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
	defer c.Close()
	url := ownSpace(srv.URL())
	_, prefix, _ := strings.Cut(url, "prefix=")
	key := prefix + ":{a}"
	set := func(value string) {
		if err := c.Set(t.Context(), key, value, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() (*commandtest.Terminal, *commandtest.Cmd) {
		tty := commandtest.NewTerminal(t)
		cmd := tty.Attach(on(t, url, "break", "a")).Start()
		tty.WaitFor("[y/N]")
		return tty, cmd
	}
	set("one")
	tty, cmd := ask()
	set("two")
	tty.Type("y\n")
	if r := cmd.Wait(); r.Code != command.ExitFailure || c.Get(t.Context(), key).Val() != "two" || !strings.Contains(tty.Shown(), "a: 1 ticket had gone meanwhile") {
		t.Errorf("%v\n%s", r, tty.Shown())
	}
	tty, cmd = ask()
	tty.Type("y\n")
	if r := cmd.Wait(); r.Code != 0 || c.Exists(t.Context(), key).Val() != 0 {
		t.Errorf("%v\n%s", r, tty.Shown())
	}
}

// Verbs that only read make no store: a name that is mistyped would become a store of its own.
func TestReadersMakeNothing(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"list"}, {"inspect", "a"}, {"break", "--yes", "a"}, {"ping", "--cycles=0"}, {"__complete", "run", "a"}} {
		dir := t.TempDir()
		typo := filepath.Join(dir, "typo", "x.db")
		commandtest.Command(t, verb...).With("LOCKER_URL=sqlite://" + typo).Run()
		commandtest.Command(t, verb...).With("XDG_STATE_HOME=" + filepath.Join(dir, "state")).Run()
		if made, _ := os.ReadDir(dir); len(made) > 0 {
			t.Errorf("%q has made %s", verb, made[0].Name())
		}
	}
}

// A leader whose command has run without the leadership, on a store that tells nobody, has not
// done its work: it campaigns again, and does not stop.
func TestElectLossFoundAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, srv := range map[string]*testbed.Server{"redis": testbed.SharedRedis(t), "mariadb": testbed.SharedMariaDB(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := "LOCKER_URL=" + srv.URL()
			file := filepath.Join(t.TempDir(), "starts")
			leader := candidate(t, env, []string{"--on-success=stop", "--on-failure=stop"},
				shell(`trap '' TERM; echo $LOCKER_TOKEN >> "$1"; test $(wc -l < "$1") -gt 1 || { echo leads; read line; }`, file))
			in, err := leader.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			leader.Start()
			leader.WaitOut("leads")
			if r := commandtest.Command(t, "break", "--yes", t.Name()).With(env).Run(); r.Code != 0 {
				t.Fatal(r)
			}
			in.Close()
			r := leader.Wait()
			text, _ := os.ReadFile(file)
			if r.Code != 0 || strings.Count(string(text), "\n") != 2 || !strings.Contains(r.ErrOut, "lost") {
				t.Errorf("the tokens are %q, %v", text, r)
			}
		})
	}
}

// What could not be written is no success: a script would keep half of it.
func TestOutputFails(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	_, url := ownFile(t)
	hold(t, client(t, url), "a")
	for _, line := range []string{
		"", "--help", "help", "help run", "run --help", "help exit-codes", "--version", "version", "version --json",
		"completion", "completion bash", "completion zsh", "completion fish", "completion powershell", "__complete inspect ",
		"list --url URL", "list --json --url URL", "inspect a --url URL", "inspect a --json --url URL", "inspect free --url URL",
		"watch --url URL", "watch --json --url URL", "ping --url URL", "ping --json --url URL", "schema postgres", "schema mysql --json",
		"conformance --list", "conformance --case ^inspect/empty$ --url URL", "bench --duration 1s --clients 2 --url URL",
		"console --listen 127.0.0.1:0 --url URL", "console --listen 127.0.0.1:0 --json --url URL", "break --yes a --url URL",
	} {
		args := strings.Split(strings.ReplaceAll(line, "URL", url), " ")
		if line == "" {
			args = nil
		}
		var said strings.Builder
		code := command.Main(args, command.Streams{In: strings.NewReader(""), Out: full, Err: &said})
		if code != command.ExitFailure || !strings.Contains(said.String(), "no space left on device") {
			t.Errorf("locker %s: exit code %d: %s", line, code, said.String())
		}
	}
}
