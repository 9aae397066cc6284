//go:build unix

package supervise_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/supervise"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == guardArgument {
		supervise.Guard(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// guardArgument makes this test binary a guard.
const guardArgument = "guard"

// realGuard is the command line of a guard that writes its process number into a file.
func realGuard(t *testing.T, file string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"/bin/sh", "-c", `echo $$ >> "$1"; exec "$2" ` + guardArgument, "sh", file, self}
}

// run runs a command that writes "command" into the file $1, under a guard.
func run(t *testing.T, guard string) (file string, log []string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "order")
	cmd := exec.Command("sh", "-c", `echo command >> "$1"`, "sh", file)
	result, err := supervise.Run(t.Context(), cmd, supervise.Options{
		Guard: []string{"/bin/sh", "-c", guard, "sh", file},
		Log:   func(text string) { log = append(log, text) },
		Until: func() time.Time { return time.Now().Add(time.Hour) },
	})
	if err != nil || result.Code != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	return file, log
}

// A command is started when its guard watches: before that nobody would end it if this
// process were killed.
func TestGuardBeforeCommand(t *testing.T) {
	file, log := run(t, `/bin/sleep 0.3; echo guard >> "$1"; echo; exec /bin/cat`)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if order := strings.Fields(string(text)); !slices.Equal(order, []string{"guard", "command"}) {
		t.Errorf("started in the order %q", order)
	}
	if len(log) > 0 {
		t.Errorf("said %q", log)
	}
}

// The command is not started if the right to run it ends while the guard comes up.
func TestRightEndsBeforeCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	begun := time.Now()
	_, err := supervise.Run(t.Context(), exec.Command("touch", file), supervise.Options{
		Guard: []string{"/bin/sh", "-c", "/bin/sleep 0.3; echo; exec /bin/cat"},
		Until: func() time.Time { return begun.Add(200 * time.Millisecond) },
		Log:   func(text string) { t.Log(text) },
	})
	if _, started := os.Stat(file); started == nil || !errors.Is(err, supervise.ErrNotValid) {
		t.Errorf("started: %t, %v", started == nil, err)
	}
}

// A process that stands still when the right to run the command ends finds that out late.
// The command, which does not heed SIGTERM, is killed no later for that.
func TestRightEndsDuringAStall(t *testing.T) {
	const right, grace = time.Second, 3 * time.Second
	killed := func(t *testing.T, stall time.Duration) (after time.Duration) {
		ctx, notice := context.WithCancel(t.Context())
		begun := time.Now()
		time.AfterFunc(right+stall, notice)
		result, err := supervise.Run(ctx, exec.Command("sh", "-c", `trap "" TERM; exec sleep 60`), supervise.Options{
			Grace: grace,
			Until: func() time.Time { return begun.Add(right) },
			Guard: []string{"/no/guard"},
			Log:   func(text string) { t.Log(text) },
		})
		if err != nil || result.Code != 128+int(syscall.SIGKILL) || !result.Ended {
			t.Errorf("%+v, %v", result, err)
		}
		return time.Since(begun) - right - stall
	}
	t.Run("no stall", func(t *testing.T) {
		t.Parallel()
		if after := killed(t, 0); after < grace/2 {
			t.Errorf("killed after %v, the grace is %v", after, grace)
		}
	})
	t.Run("stall", func(t *testing.T) {
		t.Parallel()
		if after := killed(t, grace); after > grace*2/3 {
			t.Errorf("killed %v after a stall as long as the grace", after)
		}
	})
}

func TestGuardThatDoesNotComeUp(t *testing.T) {
	for name, guard := range map[string]string{"ends": "exit 1", "hangs": "exec /bin/sleep 60"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, log := run(t, guard)
			if len(log) != 1 || !strings.Contains(log[0], "there is no guard") {
				t.Errorf("said %q", log)
			}
		})
	}
}

// If this process goes on after it was stopped, and the right to run the command has ended
// meanwhile, the command has what is left of its grace, and no more.
func TestGoesOnAfterTheRight(t *testing.T) { // not parallel: all Runs of this process get the SIGCONT
	const right, stop = 500 * time.Millisecond, time.Second
	resume := func(t *testing.T, grace, noticed time.Duration) supervise.Result {
		t.Helper()
		begun := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), begun.Add(noticed))
		defer cancel()
		time.AfterFunc(stop, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGCONT) })
		result, err := supervise.Run(ctx, exec.Command("sh", "-c", `trap 'sleep 0.3; exit 3' TERM; while :; do sleep 0.02; done`), supervise.Options{
			Grace: grace,
			Until: func() time.Time { return begun.Add(right) },
			Guard: []string{"/no/guard"},
			Log:   func(text string) { t.Log(text) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	t.Run("grace is left", func(t *testing.T) {
		if r := resume(t, 20*time.Second, stop+100*time.Millisecond); r.Code != 3 || !r.Ended {
			t.Errorf("%+v: killed before the end of its grace", r)
		}
	})
	t.Run("grace is over", func(t *testing.T) {
		if r := resume(t, right/2, time.Minute); r.Code != 128+int(syscall.SIGKILL) {
			t.Errorf("%+v: not killed", r)
		}
	})
}

// The guard ends the command at the end of the right to run it, in the stead of a process
// that does nothing: SIGTERM, and SIGKILL after the grace.
func TestGuardEndsTheCommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	begun := time.Now()
	const right, grace = time.Second, time.Second
	result, err := supervise.Run(t.Context(), exec.Command("sh", "-c", `trap 'echo TERM >> "$1"' TERM; while :; do sleep 0.02; done`, "sh", file), supervise.Options{
		Grace: grace,
		Until: func() time.Time { return begun.Add(right) },
		Guard: realGuard(t, filepath.Join(t.TempDir(), "pid")),
		Log:   func(text string) { t.Log(text) },
	})
	if err != nil || result.Code != 128+int(syscall.SIGKILL) || result.Ended {
		t.Errorf("%+v, %v", result, err)
	}
	if d := time.Since(begun); d < right+grace {
		t.Errorf("killed after %v; the right lasted %v, and the grace is %v", d, right, grace)
	}
	if text, _ := os.ReadFile(file); string(text) != "TERM\n" {
		t.Errorf("the command got %q", text)
	}
}

// A right that is prolonged again and again does not end.
func TestGuardHeedsProlonging(t *testing.T) {
	t.Parallel()
	result, err := supervise.Run(t.Context(), exec.Command("sh", "-c", "sleep 2"), supervise.Options{
		Until: func() time.Time { return time.Now().Add(time.Second) },
		Guard: realGuard(t, filepath.Join(t.TempDir(), "pid")),
		Log:   func(text string) { t.Log(text) },
	})
	if err != nil || result != (supervise.Result{}) {
		t.Errorf("%+v, %v", result, err)
	}
}

// A guard that was killed is replaced by one that watches as it did.
func TestKilledGuardIsReplaced(t *testing.T) {
	t.Parallel()
	pids, up := filepath.Join(t.TempDir(), "pids"), filepath.Join(t.TempDir(), "up")
	read := func(pids string, n int) (pid int) {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			text, _ := os.ReadFile(pids)
			if fields := strings.Fields(string(text)); len(fields) == n && strings.HasSuffix(string(text), "\n") {
				pid, _ = strconv.Atoi(fields[n-1])
				return pid
			}
			if time.Now().After(end) {
				t.Errorf("no guard number %d", n)
				return 0
			}
		}
	}
	var right atomic.Pointer[time.Time]
	far := time.Now().Add(time.Hour)
	right.Store(&far)
	var said atomic.Pointer[string]
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		read(up, 1) // the command runs, so the guard watches
		if first := read(pids, 1); first != 0 {
			_ = syscall.Kill(first, syscall.SIGKILL)
		}
		read(pids, 2)
		soon := time.Now().Add(100 * time.Millisecond)
		right.Store(&soon) // the context does not end: the second guard has to end the command
	})
	result, err := supervise.Run(t.Context(), exec.Command("sh", "-c", `echo 1 >> "$1"; exec sleep 20`, "sh", up), supervise.Options{
		Until: func() time.Time { return *right.Load() },
		Guard: realGuard(t, pids),
		Log:   func(text string) { said.Store(&text) },
	})
	if err != nil || result.Code < 128 {
		t.Errorf("%+v, %v", result, err)
	}
	if text := said.Load(); text == nil {
		t.Error("said nothing")
	} else if !strings.Contains(*text, "another one watches") {
		t.Errorf("said %q", *text)
	}
}

// A command whose right ends gets SIGTERM once: from this process, and not from the guard too.
func TestOneSIGTERM(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	until := time.Now().Add(time.Second)
	ctx, cancel := context.WithDeadline(t.Context(), until)
	defer cancel()
	result, err := supervise.Run(ctx, exec.Command("sh", "-c", `trap 'echo TERM >> "$1"' TERM; while :; do sleep 0.02; done`, "sh", file), supervise.Options{
		Grace: time.Second,
		Until: func() time.Time { return until },
		Guard: realGuard(t, filepath.Join(t.TempDir(), "pid")),
		Log:   func(text string) { t.Log(text) },
	})
	if err != nil || result.Code != 128+int(syscall.SIGKILL) || !result.Ended {
		t.Errorf("%+v, %v", result, err)
	}
	if text, _ := os.ReadFile(file); string(text) != "TERM\n" {
		t.Errorf("the command got %q", text)
	}
}

// The guard has sent SIGTERM in the stead of this process, which goes on within the grace: the
// command does not get another one.
func TestOneSIGTERMIfNoticedLate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	const right, grace, late = 300 * time.Millisecond, 2 * time.Second, time.Second
	begun := time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), begun.Add(right+late))
	defer cancel()
	result, err := supervise.Run(ctx, exec.Command("sh", "-c", `trap 'echo TERM >> "$1"' TERM; while :; do sleep 0.02; done`, "sh", file), supervise.Options{
		Grace: grace,
		Until: func() time.Time { return begun.Add(right) },
		Guard: realGuard(t, filepath.Join(t.TempDir(), "pid")),
		Log:   func(text string) { t.Log(text) },
	})
	if err != nil || result.Code != 128+int(syscall.SIGKILL) || !result.Ended {
		t.Errorf("%+v, %v", result, err)
	}
	if text, _ := os.ReadFile(file); string(text) != "TERM\n" {
		t.Errorf("the command got %q", text)
	}
}

// The guard answers orders without SIGTERM: whoever ends the command learns from it whether the guard has sent SIGTERM, and
// need not wait long for that.
func TestGuardAnswers(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, guardArgument)
	orders, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := func(what, answer string) {
		t.Helper()
		b := make([]byte, 1)
		if _, err := answers.Read(b); err != nil || string(b) != answer {
			t.Fatalf("%s: %q, %v", what, b, err)
		}
	}
	want("it has come up", "\n")
	for what, order := range map[string]string{"without times": "0 mark 0 0\n", "to kill later": "0 mark 0 9000000000000000000\n"} {
		_, _ = orders.Write([]byte(order))
		want(what, "\n")
	}
	_, _ = orders.Write([]byte("0 mark 1 0\n")) // group 0 is none
	want("SIGTERM is due", "T")
	_ = orders.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
