//go:build unix

package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// writes is a script that writes the time into the file $1 again and again, and
// does not heed SIGTERM.
const writes = `trap '' TERM INT; while :; do date +%s%N >> "$1"; sleep 0.01; done`

// tree is a script whose processes all write: the command, a child, and one in a
// process group of its own, as timeout makes it.
const tree = `
	sh -c '` + writesQuoted + `' sh "$1.child" &
	timeout 300 sh -c '` + writesQuoted + `' sh "$1.group" &
	` + writes

const writesQuoted = `trap "" TERM INT; while :; do date +%s%N >> "$1"; sleep 0.01; done`

var treeFiles = []string{"", ".child", ".group"}

// lastWrite is the last time in a file.
func lastWrite(t *testing.T, path string) time.Time {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	if len(lines) == 0 {
		return time.Time{}
	}
	return time.Unix(0, number(t, lines[len(lines)-1]))
}

func waitForWrites(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range treeFiles {
		commandtest.Eventually(t, "the command writes", func() bool {
			info, err := os.Stat(path + suffix)
			return err == nil && info.Size() > 0
		})
	}
}

// When locker is killed, so are the command and all that it has started, and the
// lock ends with its lease.
func TestRunKilled(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		file := filepath.Join(t.TempDir(), "times")
		holder := locked(t, env, []string{t.Name(), "--ttl=2s"}, shell(tree, file)).Start()
		waitForWrites(t, file)
		killed := time.Now()
		holder.Signal(syscall.SIGKILL)
		holder.Wait()
		r := locked(t, env, []string{t.Name(), "--wait=45s"}, shell("date +%s%N")).Run()
		if r.Code != 0 {
			t.Fatal(r)
		}
		granted := time.Unix(0, number(t, r.Out))
		t.Logf("the next one was granted %v after the kill", granted.Sub(killed))
		for _, suffix := range treeFiles {
			last := lastWrite(t, file+suffix)
			t.Logf("the process %q was dead %v after the kill", suffix, last.Sub(killed))
			if !last.Before(granted) {
				t.Errorf("the process %q went on for %v after the next one was granted", suffix, last.Sub(granted))
			}
		}
	}, "consul", "zookeeper")
}

// If a holder cannot reach the store, its command and all that it has started are dead
// before the store grants the lock to anybody else, though they do not heed SIGTERM.
func TestRunCutOff(t *testing.T) {
	t.Parallel()
	for name, srv := range map[string]*testbed.Server{
		"redis": testbed.SharedRedis(t), "etcd": testbed.SharedEtcd(t), "postgres": testbed.SharedPostgres(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "times")
			proxy := srv.Proxy(t)
			holder := locked(t, "LOCKER_URL="+proxy.URL(), []string{t.Name(), "--ttl=12s", "-v"}, shell(tree, file)).Start()
			waitForWrites(t, file)
			next := locked(t, "LOCKER_URL="+srv.URL(), []string{t.Name(), "-v"}, shell("date +%s%N")).Start()
			next.WaitErr("waiting for")
			proxy.Cut()
			n := next.Wait()
			if r := holder.Wait(); r.Code != command.ExitLost || !strings.Contains(r.ErrOut, "the lock was lost while the command ran") {
				t.Errorf("want %d, %v", command.ExitLost, r)
			}
			granted := time.Unix(0, number(t, n.Out))
			for _, suffix := range treeFiles {
				last := lastWrite(t, file+suffix)
				t.Logf("the process %q was dead %v before the next grant", suffix, granted.Sub(last))
				if !last.Before(granted) {
					t.Errorf("the process %q went on for %v after the next one was granted", suffix, last.Sub(granted))
				}
			}
		})
	}
}

// A store that is paused for longer than the lease grants the lock to nobody else
// before the command is dead.
func TestRunPausedStore(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	env := "LOCKER_URL=" + srv.URL()
	file := filepath.Join(t.TempDir(), "times")
	heeds := strings.TrimSuffix(tree, writes) + "trap 'exit 0' TERM; date > $1; wait" // its children do not heed SIGTERM
	holder := locked(t, env, []string{t.Name(), "--ttl=6s"}, shell(heeds, file)).Start()
	waitForWrites(t, file)
	next := locked(t, env, []string{t.Name(), "-v"}, shell("date +%s%N")).Start()
	next.WaitErr("waiting for")
	srv.Pause()
	time.Sleep(7 * time.Second) // the lease ends
	srv.Resume()
	n := next.Wait()
	if r := holder.Wait(); r.Code != command.ExitLost {
		t.Error(r)
	}
	granted := time.Unix(0, number(t, n.Out))
	for _, suffix := range treeFiles[1:] {
		if last := lastWrite(t, file+suffix); !last.Before(granted) {
			t.Errorf("the process %q went on for %v after the next one was granted", suffix, last.Sub(granted))
		}
	}
}

// A command that heeds SIGTERM ends by it; the lock that was broken is free at
// once.
func TestRunBroken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, env string) {
		url, ok := strings.CutPrefix(env, "LOCKER_URL=")
		if !ok {
			url = "sqlite://" + strings.TrimPrefix(env, "XDG_STATE_HOME=") + "/locker/locks.db"
		}
		holder := locked(t, env, []string{t.Name(), "--ttl=6s"},
			shell(`trap 'echo ends; exit 0' TERM; echo $LOCKER_TOKEN; while :; do sleep 0.05; done`)).Start()
		token := uint64(number(t, holder.WaitOut("\n"))) //nolint:gosec // it is positive
		client, err := locker.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.Break(t.Context(), t.Name(), token); err != nil {
			t.Fatal(err)
		}
		if r := holder.Wait(); r.Code != command.ExitLost || !strings.HasSuffix(r.Out, "ends\n") {
			t.Error(r)
		}
	})
}

// Signals reach the command and what it has started once each, and its code is
// locker's.
func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	holder := locked(t, env, []string{t.Name()}, shell(`
		trap 'echo child TERM; exit 0' TERM
		trap 'echo USR1' USR1; trap 'echo USR2' USR2; trap 'echo WINCH' WINCH
		trap 'echo HUP' HUP; trap 'echo INT' INT; trap 'echo QUIT' QUIT
		(trap 'echo grandchild TERM; exit 0' TERM; trap '' HUP INT QUIT USR1 USR2; echo up; while :; do sleep 0.02; done) &
		while :; do wait; done`)).Start()
	holder.WaitOut("up")
	for sig, name := range map[syscall.Signal]string{
		syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2", syscall.SIGWINCH: "WINCH",
		syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT",
	} {
		holder.Signal(sig)
		if out := holder.WaitOut(name + "\n"); strings.Count(out, name) != 1 {
			t.Errorf("%s came more than once: %q", name, out)
		}
	}
	holder.Signal(syscall.SIGTERM)
	r := holder.Wait()
	if r.Code != 0 || strings.Count(r.Out, "child TERM") != 2 || strings.Count(r.Out, "grandchild TERM") != 1 {
		t.Error(r)
	}
}

// The reader of locker's messages may go away.
func TestRunBrokenPipe(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := locked(t, env, []string{t.Name(), "-v"}, shell(`read line; exit 7`))
	cmd.Stderr = w
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Start()
	r.Close()
	time.Sleep(10 * time.Millisecond)
	in.Close()
	if r := cmd.Wait(); r.Code != 7 {
		t.Error(r)
	}
	if r := locked(t, env, []string{t.Name(), "--try"}, shell(`echo free`)).Run(); r.Code != 0 {
		t.Errorf("the lock was not released: %v", r)
	}
}

// A store that is gone when the command ends does not change its exit code.
func TestRunStoreGoneAtTheEnd(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	holder := locked(t, "LOCKER_URL="+srv.URL(), []string{t.Name()}, shell(`echo held; read line; exit 3`))
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	holder.Start()
	holder.WaitOut("held")
	srv.Kill()
	in.Close()
	r := holder.Wait()
	if r.Code != 3 || !strings.Contains(r.ErrOut, "the store has not confirmed that the lock is free; at the latest it is after 30s") ||
		strings.Contains(r.ErrOut, "in the background") {
		t.Error(r)
	}
}

// Processes that a command leaves in the background go on when it has ended by itself.
func TestRunLeavesTheBackground(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedRedis(t).URL()
	file := filepath.Join(t.TempDir(), "done")
	r := locked(t, env, []string{t.Name()}, shell(`(sleep 0.3; echo done > "$1") >/dev/null 2>&1 & exit 0`, file)).Run()
	if r.Code != 0 {
		t.Error(r)
	}
	commandtest.Eventually(t, "the background has ended", func() bool {
		text, _ := os.ReadFile(file)
		return string(text) == "done\n"
	})
}

// On a terminal the command can read from it, and Ctrl-C reaches it once.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	tty := commandtest.NewTerminal(t)
	cmd := locked(t, "LOCKER_URL="+testbed.SharedRedis(t).URL(), []string{t.Name(), "-v"}, shell(`
		trap 'echo "<INT>"; got=1' INT
		read a; echo "read <$a>"
		while [ -z "$got" ]; do sleep 0.02; done; echo asleep; sleep 0.3
		read b; echo "read <$b>"; exit 4`))
	tty.Attach(cmd).Start()
	tty.WaitFor("acquired")
	tty.Type("one\n")
	tty.WaitFor("read <one>")
	tty.Type("\x03")
	tty.WaitFor("asleep")
	tty.Type("two\n")
	shown := tty.WaitFor("read <two>")
	if r := cmd.Wait(); r.Code != 4 || strings.Count(shown, "<INT>") != 1 {
		t.Errorf("%v\n%s", r, shown)
	}
	if !strings.Contains(shown, "\x1b[2m") {
		t.Errorf("no colours: %q", shown)
	}
}

// The command of a locker that is itself the command of one, or that a script starts which is, can read
// from the terminal, too, and the shell has it back at the end.
func TestRunNestedOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, outer string }{
		{"locker", "exec"},
		{"script", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tty := commandtest.NewTerminal(t)
			cmd := locked(t, "LOCKER_URL="+testbed.SharedRedis(t).URL(), []string{t.Name()}, shell(
				c.outer+` "$0" run "$1" -- sh -c 'echo up; read a; echo "read <$a>"; exit 4'`+"\nexit $?", t.Name()+" inner"))
			cmd.Args[len(cmd.Args)-2] = commandtest.Binary(t)
			tty.Attach(cmd).Start()
			tty.WaitFor("up")
			tty.Type("one\n")
			tty.WaitFor("read <one>")
			if r := cmd.Wait(); r.Code != 4 {
				t.Errorf("%v\n%s", r, tty.Shown())
			}
		})
	}
}

// Ctrl-Z stops a locker and the one that is its command, and fg goes on with both.
func TestRunNestedStoppedAndContinued(t *testing.T) {
	t.Parallel()
	tty, sh := bashOnATerminal(t)
	end := filepath.Join(t.TempDir(), "end")
	tty.Type(fmt.Sprintf("%[1]s run %[2]s -- %[1]s run %[2]s-inner -- bash -c 'echo u\"\"p; while [ ! -e %[3]s ]; do sleep 0.02; done; exit 4'\n",
		commandtest.Binary(t), t.Name(), end))
	tty.WaitFor("up")
	tty.Type("\x1a")
	tty.WaitFor("]+  Stopped")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tty.Type("fg\necho then=$?\n")
	tty.WaitFor("then=4")
	tty.Type("exit\n")
	sh.Wait()
}

// bashOnATerminal starts a shell with job control.
func bashOnATerminal(t *testing.T) (*commandtest.Terminal, *commandtest.Cmd) {
	t.Helper()
	tty, sh := commandtest.NewTerminal(t), commandtest.Command(t)
	sh.Path, sh.Args = "/bin/bash", []string{"bash", "--norc", "-i"}
	sh.With("LOCKER_URL="+testbed.SharedRedis(t).URL(), "PS1=ready> ", "TERM=dumb")
	tty.Attach(sh).Start()
	tty.WaitFor("ready> ")
	return tty, sh
}

// Ctrl-Z does that, too, if the innermost command has the terminal, and fg gives it back to that.
func TestRunNestedStoppedWhileItReads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, outer string }{
		{"locker", "exec"},
		{"script", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tty, sh := bashOnATerminal(t)
			tty.Type(fmt.Sprintf("%[1]s run %[2]s -- sh -c '%[3]s %[1]s run %[2]s-inner -- sh -c '\\''while read a; do echo \"<$a>\"; [ $a = end ] && exit 4; done'\\''; exit $?'\n",
				commandtest.Binary(t), t.Name(), c.outer))
			answers := func(line string) {
				tty.Type(line + "\n")
				tty.WaitFor("<" + line + ">")
			}
			answers("begin")
			for i := range 2 {
				tty.Type("\x1a")
				commandtest.Eventually(t, "all are stopped", func() bool { return strings.Count(tty.Shown(), "]+  Stopped") == i+1 })
				tty.Type("fg\n")
				answers(fmt.Sprint("again", i))
			}
			answers("end")
			tty.Type("echo then=$?\n")
			tty.WaitFor("then=4")
			tty.Type("exit\n")
			sh.Wait()
		})
	}
}

// Whoever stops the command alone stops nothing else: the lock stays held. A locker that stopped itself, too,
// would not notice the end of the command.
func TestRunStoppedByAnOperator(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the state of a process is read in /proc")
	}
	holder := locked(t, "LOCKER_URL="+testbed.SharedRedis(t).URL(), []string{t.Name()},
		shell(`echo $$ up; while :; do read x; [ "$x" ] && exit 4; done`))
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	holder.Start()
	pid := int(number(t, strings.Fields(holder.WaitOut("up"))[0]))
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGCONT} {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
		commandtest.Eventually(t, sig.String(), func() bool { return stands(t, pid) == (sig != syscall.SIGCONT) })
	}
	if _, err := in.Write([]byte("end\n")); err != nil {
		t.Error(err)
	}
	if r := holder.Wait(); r.Code != 4 {
		t.Error(r)
	}
}

// stands reports whether a process is stopped.
func stands(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')'):]), ") T")
}

// Ctrl-C before the command asks for the terminal reaches it once, too.
func TestRunInterruptedOnATerminal(t *testing.T) {
	t.Parallel()
	tty := commandtest.NewTerminal(t)
	cmd := locked(t, "LOCKER_URL="+testbed.SharedRedis(t).URL(), []string{t.Name()},
		shell(`trap 'echo "<INT>"; got=1' INT; echo up; while [ -z "$got" ]; do sleep 0.02; done; sleep 0.2; exit 4`)).With("NO_COLOR=1")
	tty.Attach(cmd).Start()
	tty.WaitFor("up")
	tty.Type("\x03")
	if r := cmd.Wait(); r.Code != 4 || strings.Count(tty.Shown(), "<INT>") != 1 || strings.Contains(tty.Shown(), "\x1b") {
		t.Errorf("%v\n%q", r, tty.Shown())
	}
}

// Under a shell Ctrl-Z stops locker and its command, and fg goes on with both; a
// command whose lock was lost meanwhile is killed, and does nothing more.
func TestRunStoppedAndContinued(t *testing.T) {
	t.Parallel()
	tty := commandtest.NewTerminal(t)
	file := filepath.Join(t.TempDir(), "times")
	sh := commandtest.Command(t)
	sh.Path, sh.Args = "/bin/bash", []string{"bash", "--norc", "-i"}
	sh.With("LOCKER_URL="+testbed.SharedRedis(t).URL(), "PS1=ready> ", "TERM=dumb")
	tty.Attach(sh).Start()
	tty.WaitFor("ready> ")
	// It starts no programs: a shell that waits for its child's exec cannot be stopped.
	tty.Type(fmt.Sprintf("%s run --ttl 10s %s -- bash -c 'trap \"\" TERM; exec 3<> <(:); while :; do echo ${EPOCHREALTIME/[.,]/}000 >> %s; read -rt 0.01 -u 3; done'; echo code=$?\n",
		commandtest.Binary(t), t.Name(), file))
	commandtest.Eventually(t, "the command runs", func() bool { _, err := os.Stat(file); return err == nil })
	tty.Type("\x1a")
	tty.WaitFor("]+  Stopped")
	still := func() bool {
		before := lastWrite(t, file)
		time.Sleep(100 * time.Millisecond)
		return before.Equal(lastWrite(t, file))
	}
	if !still() {
		t.Fatal("the command was not stopped")
	}
	tty.Type("fg\n")
	commandtest.Eventually(t, "the command goes on", func() bool { return !still() })
	tty.Type("\x1a")
	commandtest.Eventually(t, "both are stopped again", func() bool { return strings.Count(tty.Shown(), "]+  Stopped") == 2 })
	last := lastWrite(t, file)
	time.Sleep(10500 * time.Millisecond) // the lease ends
	tty.Type("fg; echo then=$?\n")
	tty.WaitFor(fmt.Sprintf("then=%d", command.ExitLost))
	if d := lastWrite(t, file).Sub(last); d > 0 {
		t.Errorf("the command went on without the lock, for %v", d)
	}
	tty.Type("exit\n")
	sh.Wait()
}
