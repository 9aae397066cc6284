//go:build unix

package command_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

func candidate(t *testing.T, env string, flags []string, cmd []string) *commandtest.Cmd {
	return commandtest.Command(t, append(append([]string{"elect", t.Name()}, flags...), cmd...)...).With(env)
}

// serve is a leader's command that ends at SIGTERM.
const serve = `trap 'echo ends; exit 0' TERM; echo "leads $LOCKER_TOKEN $LOCKER_NAME"; while :; do sleep 0.02; done`

// One leads at a time; when a signal ends it, its command ends first, and the next
// one leads with a greater token.
func TestElect(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		first := candidate(t, env, nil, shell(serve)).Start()
		out := first.WaitOut("leads")
		first.WaitOut("\n")
		second := candidate(t, env, []string{"--verbose"}, shell(serve)).Start()
		second.WaitErr("campaigning")
		first.Signal(syscall.SIGTERM)
		r := first.Wait()
		if r.Code != 0 || !strings.HasSuffix(r.Out, "ends\n") {
			t.Error(r)
		}
		second.WaitOut("leads")
		out2 := second.WaitOut("\n")
		if before, after := strings.Fields(r.Out), strings.Fields(out2); number(t, after[1]) <= number(t, before[1]) || after[2] != t.Name() {
			t.Errorf("first %q, then %q", out, out2)
		}
		third := candidate(t, env, []string{"--verbose"}, shell(serve)).Start()
		third.WaitErr("campaigning")
		third.Signal(syscall.SIGTERM)
		if r := third.Wait(); r.Code != 0 || r.Out != "" {
			t.Errorf("a candidate that does not lead: %v", r)
		}
		second.Signal(syscall.SIGINT) // the shell ends by it
		if r := second.Wait(); r.Code != 128+int(syscall.SIGINT) {
			t.Error(r)
		}
	})
}

// The flags decide what follows the end of the command.
func TestElectPolicies(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	for name, c := range map[string]struct {
		flags        []string
		script       string
		starts, code int
		terms        int
	}{
		"stop after success":      {[]string{"--on-success=stop"}, `exit 0`, 1, 0, 1},
		"stop after failure":      {[]string{"--on-failure=stop"}, `exit 3`, 1, 3, 1},
		"restart after success":   {[]string{"--on-failure=stop"}, `test $n -lt 3 || exit 3`, 3, 3, 1},
		"restart after failure":   {[]string{"--on-failure=restart", "--on-success=stop"}, `test $n -ge 3`, 3, 0, 1},
		"step down after success": {[]string{"--on-success=step-down", "--on-failure=stop"}, `test $n -lt 3 || exit 4`, 3, 4, 3},
		"step down after failure": {[]string{"--on-success=stop"}, `test $n -ge 3`, 3, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "count")
			r := candidate(t, env, append(c.flags, "--delay=1ms"),
				shell(`echo $LOCKER_TOKEN >> "$1"; n=$(wc -l < "$1"); echo $LOCKER_TOKEN; `+c.script, file)).Run()
			tokens := strings.Fields(r.Out)
			different := make(map[string]bool)
			for _, token := range tokens {
				different[token] = true
			}
			if len(tokens) != c.starts || len(different) != c.terms || r.Code != c.code {
				t.Errorf("want %d starts, %d terms, code %d: %v", c.starts, c.terms, c.code, r)
			}
		})
	}
}

// A leader that is killed takes its command with it, and is replaced.
func TestElectKilled(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	file := filepath.Join(t.TempDir(), "times")
	leader := candidate(t, env, []string{"--ttl=2s"}, shell(tree, file)).Start()
	waitForWrites(t, file)
	next := candidate(t, env, []string{"--ttl=2s"}, shell("date +%s%N; sleep 60")).Start()
	leader.Signal(syscall.SIGKILL)
	granted := time.Unix(0, number(t, next.WaitOut("\n")))
	for _, suffix := range treeFiles {
		if last := lastWrite(t, file+suffix); !last.Before(granted) {
			t.Errorf("the process %q went on for %v after the next election", suffix, last.Sub(granted))
		}
	}
}

// A leader that cannot reach the store ends its command before anybody else is
// elected, and campaigns again when the store is back.
func TestElectCutOff(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	proxy := srv.Proxy(t)
	file := filepath.Join(t.TempDir(), "times")
	leader := candidate(t, "LOCKER_URL="+proxy.URL(), []string{"--ttl=12s"}, shell("echo leads; "+tree, file)).Start()
	waitForWrites(t, file)
	next := candidate(t, "LOCKER_URL="+srv.URL(), []string{"-v"}, shell("date +%s%N; sleep 60")).Start()
	next.WaitErr("campaigning")
	proxy.Cut()
	granted := time.Unix(0, number(t, next.WaitOut("\n")))
	for _, suffix := range treeFiles {
		if last := lastWrite(t, file+suffix); !last.Before(granted) {
			t.Errorf("the process %q went on for %v after the next election", suffix, last.Sub(granted))
		}
	}
	leader.WaitErr(": lost after")
	proxy.Heal()
	next.Signal(syscall.SIGTERM)
	next.Wait()
	commandtest.Eventually(t, "the first leads again", func() bool { return lastWrite(t, file).After(granted) })
}

// A candidate outlives a store that is down at its start; it says so once.
func TestElectWithoutAStore(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	srv.Kill()
	c := candidate(t, "LOCKER_URL="+srv.URL(), nil, shell(serve)).Start()
	c.WaitErr("cannot campaign")
	srv.Start()
	c.WaitOut("leads")
	c.Signal(syscall.SIGTERM)
	if r := c.Wait(); r.Code != 0 || strings.Count(r.ErrOut, "cannot campaign") != 1 {
		t.Error(r)
	}
}

// A candidate that cannot reach the store, and gets SIGTERM, has not failed.
func TestElectEndsWithoutAStore(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	srv.Kill()
	c := candidate(t, "LOCKER_URL="+srv.URL(), nil, shell(serve)).Start()
	c.WaitErr("cannot campaign")
	c.Signal(syscall.SIGTERM)
	if r := c.Wait(); r.Code != 0 {
		t.Error(r)
	}
}

func TestElectWrongUse(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	for name, c := range map[string]struct {
		url  string
		args []string
		code int
		says string
	}{
		"no name":         {srv.URL(), []string{"--", "true"}, command.ExitUsage, "no name"},
		"two names":       {srv.URL(), []string{"a", "b", "--", "true"}, command.ExitUsage, "want one"},
		"empty name":      {srv.URL(), []string{"", "--", "true"}, command.ExitUsage, "1 to 486"},
		"no command":      {srv.URL(), []string{"a"}, command.ExitUsage, "want locker elect NAME -- COMMAND"},
		"command unknown": {srv.URL(), []string{"a", "--", "no-such-command"}, command.ExitNoCommand, "not found"},
		"unknown policy":  {srv.URL(), []string{"a", "--on-failure=nope", "--", "true"}, command.ExitUsage, "restart, step-down or stop"},
		"negative delay":  {srv.URL(), []string{"a", "--delay=-1s", "--", "true"}, command.ExitUsage, "zero or more"},
		"wrong password": {
			strings.Replace(srv.URL(), "://", "://somebody:secret@", 1),
			[]string{"a", "--", "true"},
			command.ExitRefused, "WRONGPASS",
		},
		"unknown scheme": {"nope://somebody:secret@host", []string{"a", "--", "true"}, command.ExitConfig, "unknown scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := commandtest.Command(t, append([]string{"elect"}, c.args...)...).With("LOCKER_URL=" + c.url).Run()
			if r.Code != c.code || !strings.Contains(r.ErrOut, c.says) || strings.Contains(r.ErrOut, "secret") {
				t.Errorf("want %d and %q, %v", c.code, c.says, r)
			}
		})
	}
}

// A signal ends a candidate also when it loses the leadership before its command has
// ended, and another one leads.
func TestElectEndsThoughTheLeadershipIsLost(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	leader := candidate(t, env, []string{"--ttl=6s"}, shell(`trap 'echo told' TERM; echo leads; while :; do sleep 0.02; done`)).Start()
	leader.WaitOut("leads")
	next := candidate(t, env, []string{"--verbose"}, shell(serve)).Start()
	next.WaitErr("campaigning")
	leader.Signal(syscall.SIGTERM)
	leader.WaitOut("told")
	if r := commandtest.Command(t, "break", "--yes", t.Name()).With(env).Run(); r.Code != 0 {
		t.Fatal(r)
	}
	next.WaitOut("leads")
	if r := leader.Wait(); r.Code != 128+int(syscall.SIGKILL) || !strings.Contains(r.ErrOut, ": lost after") {
		t.Error(r)
	}
}
