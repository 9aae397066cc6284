package command_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
)

// This binary is locker too if it is called so, and the guard that such a process starts.
func TestMain(m *testing.M) {
	if args := os.Args[1:]; filepath.Base(os.Args[0]) == "locker" || slices.Equal(args, []string{command.GuardVerb}) {
		_ = flag.CommandLine.Parse(nil) // the suite asks whether the tests of a test binary are short
		os.Exit(command.Main(args, command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	commandtest.Main(m)
}

// ownFile is the environment that names a store of the test's own, a file.
func ownFile(t *testing.T) (env, url string) {
	t.Helper()
	url = "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	return "LOCKER_URL=" + url, url
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := commandtest.Command(t, "version").Run()
	if r.Code != 0 || !strings.HasPrefix(r.Out, "locker ") || r.ErrOut != "" {
		t.Error(r)
	}
	r = commandtest.Command(t, "version", "--json").Run()
	var v struct{ Stores []string }
	if err := json.Unmarshal([]byte(r.Out), &v); err != nil || !slices.Contains(v.Stores, "redis+cluster") {
		t.Errorf("%v\n%v", err, r)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"no-such-verb"}, {"version", "--no-such-flag"}, {"version", "argument"}, {"--url"},
	} {
		r := commandtest.Command(t, args...).Run()
		if r.Code != command.ExitUsage || r.Out != "" ||
			!strings.HasPrefix(r.ErrOut, "locker: ") || !strings.Contains(r.ErrOut, "\n   try: locker ") {
			t.Error(r)
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	r := commandtest.Command(t, "--json", "version", "argument").Run()
	var e struct {
		Error, Try string
		Exit       int
	}
	if err := json.Unmarshal([]byte(r.ErrOut), &e); err != nil ||
		e.Error == "" || e.Try != "locker version --help" || e.Exit != r.Code || r.Code != command.ExitUsage {
		t.Errorf("%v\n%v", err, r)
	}
}
