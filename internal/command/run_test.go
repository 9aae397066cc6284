package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// stores are the stores that every verb is tried on, by name; "default" is the file
// that is used if no store is given.
var stores = map[string]func(t *testing.T) (url string){
	"redis":     func(t *testing.T) string { return testbed.SharedRedis(t).URL() },
	"etcd":      func(t *testing.T) string { return testbed.SharedEtcd(t).URL() },
	"consul":    func(t *testing.T) string { return testbed.SharedConsul(t).URL() },
	"zookeeper": func(t *testing.T) string { return testbed.SharedZookeeper(t).URL() + "?ttl=5s" },
	"postgres":  func(t *testing.T) string { return testbed.SharedPostgres(t).URL() },
	"mariadb":   func(t *testing.T) string { return testbed.SharedMariaDB(t).URL() },
	"default":   func(*testing.T) string { return "" },
}

// onEveryStore runs a test on every store but some. env is the environment that names it.
func onEveryStore(t *testing.T, test func(t *testing.T, env string), except ...string) {
	t.Parallel()
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(except, name) {
				t.Skip("takes long on this store, and does there what it does on others")
			}
			env := "LOCKER_URL=" + url(t)
			if name == "default" {
				env = "XDG_STATE_HOME=" + t.TempDir()
			}
			test(t, env)
		})
	}
}

// shell is a shell command with paths as $1, $2, …
func shell(script string, args ...string) []string {
	return append([]string{"--", "sh", "-c", script, "sh"}, args...)
}

func locked(t *testing.T, env string, flags []string, cmd []string) *commandtest.Cmd {
	return commandtest.Command(t, append(append([]string{"run"}, flags...), cmd...)...).With(env)
}

func TestRun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		r := locked(t, env, []string{"b " + t.Name(), "a " + t.Name()},
			shell(`echo "$LOCKER_COUNT,$LOCKER_NAME_1,$LOCKER_NAME_2,$LOCKER_NAME"; test "$LOCKER_TOKEN_1" -gt 0 -a "$LOCKER_TOKEN_2" -gt 0; exit $((5 + $?))`)).Run()
		if want := fmt.Sprintf("2,b %[1]s,a %[1]s,\n", t.Name()); r.Code != 5 || r.Out != want || r.ErrOut != "" {
			t.Errorf("want %q, %v", want, r)
		}
		first := locked(t, env, []string{t.Name()}, shell(`echo $LOCKER_TOKEN; read line`))
		pipe, err := first.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		first.Start()
		token := first.WaitOut("\n")
		r = locked(t, env, []string{t.Name(), "--try"}, shell(`echo no`)).Run()
		if r.Code != command.ExitBusy || r.Out != "" || !strings.Contains(r.ErrOut, "held by") || !strings.Contains(r.ErrOut, "(sh)") {
			t.Error(r)
		}
		r = locked(t, env, []string{t.Name(), "--try", "--on-busy=0"}, shell(`echo no`)).Run()
		if r.Code != 0 || r.Out+r.ErrOut != "" {
			t.Error(r)
		}
		second := locked(t, env, []string{t.Name(), "--verbose"}, shell(`echo $LOCKER_TOKEN`)).Start()
		second.WaitErr("waiting for")
		pipe.Close()
		if r := first.Wait(); r.Code != 1 { // of read
			t.Error(r)
		}
		if r := second.Wait(); r.Code != 0 || number(t, r.Out) <= number(t, token) {
			t.Errorf("want a token above %s, %v", token, r)
		}
	})
}

func number(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// The command's code is the process's.
func TestRunExitCode(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	script := filepath.Join(t.TempDir(), "script") // without #!, as execvp runs it
	if err := os.WriteFile(script, []byte("exit $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want int
		cmd  []string
	}{
		{0, []string{"true"}},
		{1, []string{"false"}},
		{255, []string{"sh", "-c", "exit 255"}},
		{137, []string{"sh", "-c", "kill -KILL $$"}},
		{143, []string{"sh", "-c", "kill -TERM $$"}},
		{42, []string{script, "42"}},
		{command.ExitNoCommand, []string{"no-such-command"}},
		{command.ExitNoCommand, []string{"/no/such/command"}},
		{command.ExitNoExec, []string{"/etc/passwd"}},
	} {
		if r := locked(t, env, []string{t.Name()}, append([]string{"--"}, c.cmd...)).Run(); r.Code != c.want {
			t.Errorf("want %d, %v", c.want, r)
		}
	}
}

// Errors are reported before anything is touched, with the next thing to try, and
// never with the password.
func TestRunWrongUse(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	secret := strings.Replace(srv.URL(), "://", "://somebody:secret@", 1)
	closed := fmt.Sprintf("redis://somebody:secret@127.0.0.1:%d", testbed.Port(t))
	never := shell("echo never")
	for name, c := range map[string]struct {
		env   string
		flags []string
		cmd   []string
		code  int
		says  string
	}{
		"no name":         {srv.URL(), nil, never, command.ExitUsage, "no name of a lock"},
		"empty name":      {srv.URL(), []string{""}, never, command.ExitUsage, "want 1 to 512 bytes"},
		"long name":       {srv.URL(), []string{strings.Repeat("x", 513)}, never, command.ExitUsage, "513 bytes"},
		"not UTF-8":       {srv.URL(), []string{"a\xff"}, never, command.ExitUsage, "not valid UTF-8"},
		"no dash":         {srv.URL(), []string{"a", "true"}, nil, command.ExitUsage, "no command"},
		"no command":      {srv.URL(), []string{"a", "--"}, nil, command.ExitUsage, "no command after --"},
		"empty command":   {srv.URL(), []string{"a", "--", ""}, nil, command.ExitUsage, "is empty"},
		"no directory":    {srv.URL(), []string{"a", "--", "/"}, nil, command.ExitNoExec, "cannot be executed"},
		"unknown flag":    {srv.URL(), []string{"a", "--nope"}, never, command.ExitUsage, "unknown flag: --nope"},
		"bad TTL":         {srv.URL(), []string{"a", "--ttl=5x"}, never, command.ExitUsage, "or a number of seconds"},
		"short TTL":       {srv.URL(), []string{"a", "--ttl=10ms"}, never, command.ExitUsage, "want 1s or more"},
		"long grace":      {srv.URL(), []string{"a", "--grace=20s"}, never, command.ExitUsage, "a longer --ttl"},
		"negative grace":  {srv.URL(), []string{"a", "--grace=-1s"}, never, command.ExitUsage, "zero or more"},
		"negative wait":   {srv.URL(), []string{"a", "--wait=-1s"}, never, command.ExitUsage, "wait -1s"},
		"try and wait":    {srv.URL(), []string{"a", "--try", "--wait=1s"}, never, command.ExitUsage, "exclude each other"},
		"no limit":        {srv.URL(), []string{"a", "--limit=0"}, never, command.ExitUsage, "limit 0"},
		"bad code":        {srv.URL(), []string{"a", "--on-busy=256"}, never, command.ExitUsage, "0 to 255"},
		"no minimum":      {srv.URL(), []string{"a", "--hold-at-least=0s"}, never, command.ExitUsage, "more than zero"},
		"long note":       {srv.URL(), []string{"a", "--note=" + strings.Repeat("x", 513)}, never, command.ExitUsage, "note of 513 bytes"},
		"no owner":        {srv.URL(), []string{"a", "--owner="}, never, command.ExitUsage, "--owner is empty"},
		"two stores":      {srv.URL() + " " + srv.URL(), []string{"a"}, never, command.ExitUsage, "want one"},
		"no URL":          {"", []string{"a"}, never, command.ExitConfig, "LOCKER_URL is empty"},
		"unknown scheme":  {"nope://somebody:secret@host", []string{"a"}, never, command.ExitConfig, `unknown scheme "nope"`},
		"malformed URL":   {"redis://somebody:secret@host:port", []string{"a"}, never, command.ExitConfig, "bad port"},
		"bad parameter":   {secret + "?nope=1", []string{"a"}, never, command.ExitConfig, `unknown parameter "nope"`},
		"wrong password":  {secret, []string{"a"}, never, command.ExitRefused, "WRONGPASS"},
		"store is down":   {closed, []string{"a"}, never, command.ExitUnavailable, "connection refused"},
		"several, one ''": {srv.URL(), []string{"a", ""}, never, command.ExitUsage, "want 1 to 512 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := locked(t, "LOCKER_URL="+c.env, c.flags, c.cmd).Run()
			if r.Code != c.code || r.Out != "" || !strings.Contains(r.ErrOut, c.says) || strings.Contains(r.ErrOut, "secret") {
				t.Errorf("want %d and %q, %v", c.code, c.says, r)
			}
			if first, try, ok := strings.Cut(r.ErrOut, "\n"); !strings.HasPrefix(first, "locker: ") ||
				c.code < 126 && (!ok || !strings.HasPrefix(try, "   try: ")) {
				t.Error(r)
			}
		})
	}
}

// Missing rights have another exit code than a store that is down.
func TestRunMissingRights(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer admin.Close()
	if err := admin.ACLSetUser(t.Context(), "reader", "on", ">secret", "~*", "&*", "+@read", "+@connection").Err(); err != nil {
		t.Fatal(err)
	}
	r := locked(t, "LOCKER_URL="+strings.Replace(srv.URL(), "://", "://reader:secret@", 1), []string{"a"}, shell("echo never")).Run()
	if r.Code != command.ExitRefused || r.Out != "" || !strings.Contains(r.ErrOut, "NOPERM") || !strings.Contains(r.ErrOut, "try: ") ||
		strings.Contains(r.ErrOut, "secret") {
		t.Error(r)
	}
}

// The URL is in no process's arguments. The command gets it only by the environment,
// if that already has it.
func TestRunKeepsTheURL(t *testing.T) {
	t.Parallel()
	url := strings.Replace(testbed.Redis(t, testbed.Args("--requirepass", "secret")).URL(), "://", "://:secret@", 1)
	show := shell(`cat /proc/*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c "[s]ecret@"; echo "$LOCKER_URL"`)
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := locked(t, "LOCKER_URL_FILE="+file, []string{t.Name(), "-v"}, show).Run()
	if r.Code != 0 || r.Out != "0\n\n" || strings.Contains(r.ErrOut, "secret") {
		t.Error(r)
	}
	r = locked(t, "LOCKER_URL="+url, []string{t.Name()}, show).Run()
	if r.Code != 0 || r.Out != "0\n"+url+"\n" {
		t.Error(r)
	}
	r = locked(t, "LOCKER_URL_FILE=/no/such/file", []string{t.Name()}, show).Run()
	if r.Code != command.ExitConfig || !strings.Contains(r.ErrOut, "LOCKER_URL_FILE") {
		t.Error(r)
	}
}

// A semaphore admits as many as its limit; readers share, and keep writers out.
func TestRunShared(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	for flag, free := range map[string]int{"--limit=2": 1, "--shared": 2} {
		name := t.Name() + flag
		holder := locked(t, env, []string{name, flag}, shell("echo held; sleep 60")).Start()
		holder.WaitOut("held")
		for i := range 2 {
			other := locked(t, env, []string{name, flag, "--try"}, shell("echo held; sleep 60")).Start()
			if i < free {
				other.WaitOut("held")
			} else if r := other.Wait(); r.Code != command.ExitBusy {
				t.Error(r)
			}
		}
		if r := locked(t, env, []string{name, "--try"}, shell("echo never")).Run(); r.Code != command.ExitBusy {
			t.Errorf("a writer beside those of %s: %v", flag, r)
		}
	}
}

// A lock that is to be held for some time stays when the command has ended.
func TestRunHoldAtLeast(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		name := fmt.Sprint(t.Name(), time.Now().UnixNano()) // it stays
		if r := locked(t, env, []string{name, "--hold-at-least=1m", "--ttl=2s"}, shell("exit 3")).Run(); r.Code != 3 {
			t.Fatal(r)
		}
		if r := locked(t, env, []string{name, "--try", "--on-busy=9"}, shell("echo never")).Run(); r.Code != 9 {
			t.Error(r)
		}
	}, "zookeeper") // its leases are shorter: ErrUnsupported
}

// An outer locker's locks are not taken for the inner one's. A name that is given twice is one lock.
func TestRunNested(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	r := locked(t, env, []string{"outer 1", "outer 2"},
		[]string{"--", commandtest.Binary(t), "run", "inner", "inner", "--", "sh", "-c", "env | grep -E '^LOCKER_(NAME|COUNT)' | sort"}).Run()
	if want := "LOCKER_COUNT=1\nLOCKER_NAME=inner\nLOCKER_NAME_1=inner\n"; r.Out != want {
		t.Errorf("want %q, %v", want, r)
	}
}

// A wait has a limit.
func TestRunWait(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	holder := locked(t, env, []string{t.Name()}, shell("echo held; sleep 60")).Start()
	holder.WaitOut("held")
	r := locked(t, env, []string{t.Name(), "--wait=4s", "--json", "-v"}, shell("echo never")).Run()
	var said []string
	for line := range strings.Lines(r.ErrOut) {
		var message struct{ Message, Error string }
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Errorf("%v in %v", err, r)
		}
		said = append(said, message.Message+message.Error)
	}
	if r.Code != command.ExitBusy || r.Took < 4*time.Second || len(said) != 2 ||
		!strings.HasPrefix(said[0], "waiting for "+t.Name()+": held by") || !strings.Contains(said[1], "the wait limit has passed") {
		t.Error(r)
	}
}

// A wait that is interrupted leaves no ticket.
func TestRunInterruptedWhileWaiting(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		holder := locked(t, env, []string{t.Name()}, shell("echo held; sleep 60")).Start()
		holder.WaitOut("held")
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			waiter := locked(t, env, []string{t.Name(), "-v"}, shell("echo never")).Start()
			waiter.WaitErr("waiting for")
			waiter.Signal(sig)
			if r := waiter.Wait(); r.Code != 128+int(sig) || r.Out != "" {
				t.Errorf("%v: %v", sig, r)
			}
		}
		r := locked(t, env, []string{t.Name(), "--try"}, shell("echo never")).Run()
		if r.Code != command.ExitBusy || strings.Contains(r.ErrOut, "waiter") {
			t.Error(r)
		}
	})
}
