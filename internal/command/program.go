package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/supervise"
)

// guardVerb is the argument with which locker runs itself as the guard of a
// command: see package supervise.
const guardVerb = "guard-of-a-command"

// program is the command that locker runs.
type program struct {
	args []string
	path string
}

// splitArgs separates the names from the command after --.
func splitArgs(cmd *cobra.Command, args []string, p *program) (names []string, err error) {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0:
		return nil, fmt.Errorf("no command: want %s NAME -- COMMAND", cmd.CommandPath())
	case dash == 0:
		return nil, fmt.Errorf("no name of a lock: want %s NAME -- COMMAND", cmd.CommandPath())
	case dash == len(args):
		return nil, errors.New("no command after --")
	case args[dash] == "":
		return nil, errors.New("the command after -- is empty")
	default:
		p.args = args[dash:]
		return args[:dash], nil
	}
}

// name is what locks show of the command: not its arguments, which may be secret.
func (p *program) name() string { return strings.ToValidUTF8(filepath.Base(p.args[0]), "?") }

// find finds the program as a shell does, before anything is asked of the store.
func (p *program) find() (err error) {
	name := p.args[0]
	p.path, err = exec.LookPath(name)
	var failed *exec.Error
	switch {
	case err == nil:
		return nil
	case strings.ContainsRune(name, filepath.Separator) && errors.As(err, &failed) && !errors.Is(err, os.ErrNotExist):
		return startError(fmt.Errorf("command cannot be executed: %s: %w", name, failed.Err))
	default:
		return exit(ExitNoCommand, fmt.Errorf("command not found: %s", name), "")
	}
}

func startError(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return exit(ExitNoCommand, err, "")
	}
	return exit(ExitNoExec, err, "")
}

// run runs the program until it ends, or is ended because ctx ends. An error means
// that it was not started: supervise.ErrNotValid if the lock is not valid any more.
func (p *program) run(ctx context.Context, a *app, signals *forwarded, grace time.Duration, env []string, until func() time.Time) (int, error) {
	cmd := exec.Command(p.path, p.args[1:]...) //nolint:noctx // supervise ends it
	cmd.Args[0] = p.args[0]
	cmd.Env = append(outerEnv(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.Out, a.Err
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	result, err := supervise.Run(ctx, cmd, supervise.Options{
		Grace: grace, Signals: signals.ch, Until: until,
		Guard: []string{self, guardVerb},
		Log:   func(text string) { a.say("%s", text) },
	})
	switch {
	case errors.Is(err, supervise.ErrNotValid):
		return 0, err
	case err != nil:
		return 0, startError(err)
	}
	a.detail("%s ended with exit code %d", p.args[0], result.Code)
	return result.Code, nil
}

// forwarded are the signals that the command gets.
type forwarded struct{ ch, dropped chan os.Signal }

// catchForwarded catches them from now on, so that none ends this process. It also
// catches the signals to locker alone that must not end it while a command runs.
func catchForwarded() *forwarded {
	f := &forwarded{ch: make(chan os.Signal, 16), dropped: make(chan os.Signal, 1)}
	notify(f.ch, forwardable...)
	notify(f.dropped, droppable...)
	return f
}

// begin drops the signals that came before the command was started.
func (f *forwarded) begin() {
	for {
		select {
		case <-f.ch:
		default:
			return
		}
	}
}

func (f *forwarded) stop() {
	signal.Stop(f.ch)
	signal.Stop(f.dropped)
}

// leaseFlags are the flags that say how long a lease is, how much of it the command gets to
// end, and what others see of it.
type leaseFlags struct {
	ttl, grace time.Duration
	text       string // of --note
	flags      *pflag.FlagSet
}

const (
	minRunTTL    = time.Second
	defaultGrace = 5 * time.Second
)

func (l *leaseFlags) add(f *pflag.FlagSet, ttl string) {
	l.flags = f
	f.StringVar(&l.text, "note", "", "`TEXT` that locker inspect shows, such as an address (default: the name of the command)")
	addDuration(f, &l.ttl, "ttl", "", ttl)
	addDuration(f, &l.grace, "grace", "", "`DURATION` from SIGTERM to SIGKILL when the lock is lost (default: 5s, or a third of the lease if that is less)")
}

// reserve is the part of a lease that is left when the command has been killed:
// for clocks of different speeds, and for a machine that is busy.
func reserve(ttl time.Duration) time.Duration { return ttl/20 + 100*time.Millisecond }

// fit sets the grace for a lease of that length, and returns the safety margin. more says
// what a grace that is too long needs.
func (l *leaseFlags) fit(lease time.Duration, more string) (time.Duration, error) {
	if !l.flags.Changed("grace") {
		l.grace = min(defaultGrace, lease/3)
	}
	spare := reserve(lease)
	switch most := lease/2 - spare; {
	case l.grace < 0:
		return 0, usage(fmt.Errorf("--grace %v: want zero or more", l.grace))
	case l.grace > most:
		return 0, usage(fmt.Errorf("--grace %v: a lease of %v leaves at most %v for it; %s",
			l.grace, lease.Round(time.Millisecond), most.Round(time.Millisecond), more))
	}
	return l.grace + spare, nil
}

// openLeased opens the store for a command that runs under a lease, which a store may give no
// longer than its session. The caller closes the Client.
func (a *app) openLeased(ctx context.Context, l *leaseFlags, otherwise time.Duration, opts ...locker.ClientOption) (*locker.Client, error) {
	u, err := a.parsedURL()
	if err != nil {
		return nil, err
	}
	if ttl := u.Duration("ttl", otherwise); !l.flags.Changed("ttl") {
		l.ttl = ttl
	}
	if l.ttl < minRunTTL {
		return nil, usage(fmt.Errorf("--ttl %v: want %v or more", l.ttl, minRunTTL))
	}
	margin, err := l.fit(l.ttl, "a longer --ttl leaves more")
	if err != nil {
		return nil, err
	}
	d, err := openDriver(ctx, u)
	if err != nil {
		return nil, err
	}
	if longest := driver.BoundsOf(d, l.ttl).MaxTTL; longest > 0 && longest < l.ttl {
		if margin, err = l.fit(longest, "this store gives no longer one"); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return locker.New(d, append(opts, locker.WithSafetyMargin(margin))...), nil
}

// note is what others see of the lease for a command.
func (l *leaseFlags) note(p *program) string {
	if l.flags.Changed("note") {
		return l.text
	}
	return p.name()
}
