//go:build unix

package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// A lock that is lost before its command is started was not lost while the command ran.
func TestRunLostBeforeCommand(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	lock, err := l.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Break(t.Context(), "a", lock.Token()); err != nil {
		t.Fatal(err)
	}
	<-lock.Done()
	file := filepath.Join(t.TempDir(), "started")
	r := &run{
		app: &app{Streams: Streams{Out: t.Output(), Err: t.Output()}, handOff: func() {}}, program: &program{args: []string{"touch", file}},
		names: []string{"a"},
	}
	if err := r.program.find(); err != nil {
		t.Fatal(err)
	}
	signals := catchForwarded()
	defer signals.stop()
	err = r.hold(t.Context(), l, lock, signals)
	if _, missing := os.Stat(file); missing == nil {
		t.Error("the command was started")
	}
	if exitCode(err) != ExitLost || !strings.Contains(err.Error(), "before the command was started") {
		t.Errorf("exit code %d, %v", exitCode(err), err)
	}
}

// silent is a store that notifies nobody of a loss.
type silent struct{ driver.Driver }

// A lock that was lost while the command ran counts as lost, also if only the release, or with
// a minimum hold only the queue, says so.
func TestRunLossFoundAtTheEnd(t *testing.T) {
	for name, hold := range map[string]time.Duration{"release": 0, "minimum hold": time.Minute} {
		t.Run(name, func(t *testing.T) {
			space := memory.New()
			operator := locker.New(space)
			defer operator.Close()
			l := locker.New(silent{space.Join()})
			defer l.Close()
			lock, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"}, locker.WithMinHold(hold))
			if err != nil {
				t.Fatal(err)
			}
			if err := operator.Break(t.Context(), "b", lock.Locks()[1].Token()); err != nil {
				t.Fatal(err)
			}
			r := &run{
				app: &app{Streams: Streams{Out: t.Output(), Err: t.Output()}, handOff: func() {}}, program: &program{args: []string{"true"}},
				names: []string{"a", "b"}, holdAtLeast: hold,
			}
			if err := r.program.find(); err != nil {
				t.Fatal(err)
			}
			signals := catchForwarded()
			defer signals.stop()
			err = r.hold(t.Context(), l, lock, signals)
			if exitCode(err) != ExitLost || !strings.HasPrefix(err.Error(), "b: the lock was lost while the command ran") {
				t.Errorf("exit code %d, %v", exitCode(err), err)
			}
			if try := next(&cobra.Command{}, err); !strings.HasPrefix(try, "locker inspect b ") {
				t.Errorf("to be tried next: %s", try)
			}
		})
	}
}

// Advice names a lock so that a shell passes it on as it is.
func TestNameWord(t *testing.T) {
	for name, want := range map[string]string{"a": "a", "a b": "'a b'", "--yes": "-- --yes", "-it's": `-- '-it'\''s'`} {
		if got := nameWord(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// Only what locker sets for its command is taken from the environment of an inner locker.
func TestOuterEnv(t *testing.T) {
	for name, gone := range map[string]bool{
		"LOCKER_NAME": true, "LOCKER_TOKEN": true, "LOCKER_NAME_1": true, "LOCKER_TOKEN_12": true, "LOCKER_COUNT": true, "LOCKER_OWNER": true,
		"LOCKER_NAMESPACE": false, "LOCKER_TOKEN_FILE": false, "LOCKER_NAME_": false, "LOCKER_NAME_1A": false,
		"LOCKER_COUNTRY": false, "LOCKER_URL": false, "MY_LOCKER_NAME": false,
	} {
		t.Setenv(name, "x")
		if there := slices.Contains(outerEnv(), name+"=x"); there == gone {
			t.Errorf("%s: passed on: %t", name, there)
		}
	}
}
