// Package command is the command line of locker: one verb a file, and what the
// verbs share.
//
// A verb is a function of the form
//
//	func newThing(a *app) *cobra.Command
//
// that New adds to the root. Its RunE takes the context of the cobra.Command,
// which ends at SIGINT, SIGTERM and SIGHUP, opens the store with app.open,
// prints results with app.print (JSON under --json, else what the verb writes
// for people), and returns errors: Main has them, and that of the output, printed and
// mapped to exit codes, in one place (exit.go). Everything that a store or a user gave and that is
// printed for people goes through printable.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker/internal/supervise"
)

// Streams are the standard streams of the process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is what the verbs share.
type app struct {
	Streams
	out  *printed // Out, for results
	urls []string // of --url
	json bool     // --json

	quiet, verbose bool // of the verbs that have them: see addVoice

	began   bool   // a verb runs: an error is not one of its flags or arguments
	handOff func() // see ownSignals
}

// Main runs the command line and returns the exit code of the process.
func Main(args []string, s Streams) int {
	if len(args) == 1 && args[0] == guardVerb {
		supervise.Guard(s.In, s.Out)
		return ExitOK
	}
	ctx, stop := withSignals(context.Background())
	defer stop()
	a := &app{Streams: s, out: &printed{Writer: s.Out}, handOff: stop}
	root := a.root()
	root.SetArgs(args)
	verb, err := root.ExecuteContextC(ctx)
	if coded := new(exitError); errors.Is(a.out.err, syscall.EPIPE) {
		err = signalError{syscall.SIGPIPE} // who has caught it has ended in order
	} else if a.out.err != nil {
		err = a.out.err
	} else if err != nil && !a.began && !errors.As(err, &coded) {
		err = usage(err)
	}
	if cause := context.Cause(ctx); err != nil && isSignal(cause) && isEnd(err) {
		err = cause
	}
	return a.report(verb, err)
}

// isEnd reports whether err says no more than that a context has ended.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || isSignal(err)
}

// New makes the command line, for documentation and for tests. Programs call
// Main, which also maps errors to exit codes.
func New(s Streams) *cobra.Command {
	return (&app{Streams: s, out: &printed{Writer: s.Out}, handOff: func() {}}).root()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "locker",
		Short: "Distributed locks on the store that you have",
		Long: `locker runs programs under distributed locks, and shows who holds what, on Redis (one, or
several as Redlock), etcd, ZooKeeper, Consul, PostgreSQL, MySQL, NATS, Memcached, DynamoDB, or
SQLite: a file on this machine.

The store is that of --url, else of the variable LOCKER_URL, else of the file that
LOCKER_URL_FILE names, else $XDG_STATE_HOME/locker/locks.db, a file that all processes of
one user on this machine share. Arguments are visible to everybody on the machine, so a
URL with a password belongs in the environment or in a file.`,
		Example: `  locker run nightly-report -- ./report.sh
  LOCKER_URL=redis://localhost:6379 locker run --try --on-busy 0 backup -- pg_dump -f out.sql`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.began = true
			return noneEmpty(cmd.Flags())
		},
		Version: readVersion().line(),
		Args:    knownVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(a.In)
	root.SetOut(a.out)
	root.SetErr(a.Err)
	flags := root.PersistentFlags()
	flags.StringArrayVar(&a.urls, "url", nil, "`URL` of the store, such as redis://localhost:6379")
	flags.BoolVar(&a.json, "json", false, "print JSON: results on standard output, errors on standard error")
	root.AddCommand(
		newInspect(a), newList(a), newWatch(a), newBreak(a),
		newPing(a), newSchema(a), newConformance(a), newBench(a),
	)
	root.AddCommand(newRun(a), newElect(a), newConsole(a), newVersion(a), helpExitCodes(), helpEnvironment())
	strict(root)
	return root
}

// strict makes help and completion of what does not exist an error: cobra's own print their
// help, and a script takes that for success.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Example = "  source <(locker completion bash)\n  locker completion fish > ~/.config/fish/completions/locker.fish"
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			cmd.Example = "  locker help run\n  locker help exit-codes"
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 || found == nil {
					return fmt.Errorf("no help for %q", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
}
