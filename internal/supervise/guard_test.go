//go:build unix

package supervise_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a command that writes "command" into the file $1, under a guard.
func run(t *testing.T, guard string) (file string, log []string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "order")
	cmd := exec.Command("sh", "-c", `echo command >> "$1"`, "sh", file)
	result, err := supervise.Run(t.Context(), cmd, supervise.Options{
		Guard: []string{"/bin/sh", "-c", guard, "sh", file},
		Log:   func(text string) { log = append(log, text) },
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
		Valid: func() bool { return time.Since(begun) < 200*time.Millisecond },
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
			Valid: func() bool { return time.Since(begun) < right },
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
