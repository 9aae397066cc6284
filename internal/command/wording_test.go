//go:build unix

package command_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// What is wrong with the arguments is said in words of this command line, with what to type.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	env, _ := ownFile(t)
	for _, c := range []struct{ args, want, try string }{
		{"inspect", "got 0 arguments: want locker inspect NAME\n", "locker inspect --help"},
		{"inspect a b", "got 2 arguments: want locker inspect NAME\n", "locker inspect --help"},
		{"break", "got 0 arguments: want locker break NAME [TOKEN]\n", "locker break --help"},
		{"list a b", "got 2 arguments: want locker list [PREFIX]\n", "locker list --help"},
		{"watch a b", "got 2 arguments: want locker watch [PREFIX]\n", "locker watch --help"},
		{"version a", "got 1 argument: want locker version\n", "locker version --help"},
		{"schema", "got 0 arguments: want locker schema postgres|mysql\n", "locker schema --help"},
		{"schema oracle", `no schema for "oracle": want postgres or mysql`, "locker schema --help"},
		{"lst", `unknown command "lst"`, "locker list"},
		{"xyz", `unknown command "xyz"`, "locker --help"},
		{"run a -c true", "unknown shorthand flag: 'c'", "locker run NAME -- sh -c 'TEXT'"},
		{"run a -x true", "unknown shorthand flag: 'x'", "locker run --help"},
		{"break --yes nothing", `nobody holds "nothing" or waits for it`, "locker list"},
		{"break --yes nothing 7", `nobody holds "nothing" or waits for it`, "locker list"},
	} {
		r := commandtest.Command(t, strings.Fields(c.args)...).With(env).Run()
		if r.Code == 0 || r.Out != "" || !strings.HasPrefix(r.ErrOut, "locker: "+c.want) || !strings.Contains(r.ErrOut, "try: "+c.try) {
			t.Errorf("want %q, try %q, got %v", c.want, c.try, r)
		}
	}
}

// A store that cannot list names can still show the lock of a name.
func TestListUnsupported(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"list", "watch"} {
		r := on(t, fmt.Sprintf("memcached://127.0.0.1:%d", testbed.Port(t)), verb).Run()
		if r.Code != command.ExitUsage || !strings.Contains(r.ErrOut, "try: locker inspect NAME") {
			t.Error(r)
		}
	}
}

// A server that speaks another protocol, or TLS, answers with an error that names neither.
func TestUnavailableNamesTheScheme(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"inspect", "a"}, {"ping"}} {
		r := on(t, fmt.Sprintf("redis://127.0.0.1:%d", testbed.Port(t)), verb...).Run()
		if r.Code != command.ExitUnavailable || !strings.Contains(r.ErrOut, "scheme") {
			t.Error(r)
		}
	}
}

// The help of a flag names its value in capitals, as that of every other does.
func TestFlagsNameTheirValues(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`^[A-Z]+(:[A-Z]+)?$`)
	root := command.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); f.Value.Type() != "bool" && !named.MatchString(value) {
				t.Errorf("%s --%s %s", cmd.CommandPath(), f.Name, value)
			}
		})
	}
}

// The leases of ZooKeeper depend on its session: without --ttl and --grace they leave the command
// time to end.
func TestRunOnShortLeases(t *testing.T) {
	t.Parallel()
	env := "LOCKER_URL=" + testbed.SharedZookeeper(t).URL()
	for _, flags := range [][]string{nil, {"--ttl=1m"}} {
		if r := locked(t, env, append(flags, t.Name()), shell("echo ran")).Run(); r.Code != 0 || r.Out != "ran\n" {
			t.Error(r)
		}
	}
	if r := locked(t, env, []string{"--grace=5s", t.Name()}, shell("echo never")).Run(); r.Code != command.ExitUsage || r.Out != "" {
		t.Error(r)
	}
	if r := candidate(t, env, []string{"--on-success=stop"}, shell("echo led")).Run(); r.Code != 0 || r.Out != "led\n" {
		t.Error(r)
	}
}
