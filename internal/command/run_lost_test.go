//go:build unix

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
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
	err = r.hold(t.Context(), lock, signals)
	if _, missing := os.Stat(file); missing == nil {
		t.Error("the command was started")
	}
	if exitCode(err) != ExitLost || !strings.Contains(err.Error(), "before the command was started") {
		t.Errorf("exit code %d, %v", exitCode(err), err)
	}
}
