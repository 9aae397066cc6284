package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/supervise"
)

// What locker elect does when its command has ended.
const (
	restart  = "restart"   // start it again, as the leader still
	stepDown = "step-down" // let others lead first
	stop     = "stop"      // exit
)

// elect is one call of locker elect.
type elect struct {
	*app
	*program
	lease leaseFlags

	id                   string
	onSuccess, onFailure string
	delay                time.Duration

	name     string
	terminal bool // there was one at the start

	client  *locker.Client
	signals *forwarded
	leave   context.CancelFunc // ends the candidacy
	code    int                // of the command's last exit

	narrator *narrator

	mu      sync.Mutex
	running bool // the command
	ending  bool // a signal came that ends locker
	failing int  // the exit code of what the last campaign has failed with
}

func newElect(a *app) *cobra.Command {
	e := &elect{app: a, program: &program{}, narrator: &narrator{app: a}}
	cmd := &cobra.Command{
		Use:   "elect NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command on one of several machines: the leader",
		Long: `Campaign under a name, and run the command while this machine leads: on one machine
at a time, and on another one if that one fails. The leader is the holder of the lock of
that name: locker inspect shows it, and the candidates in order.

When the command ends, --on-success (code 0) or --on-failure says what follows:
  restart    start it again, and go on leading
  step-down  let the other candidates lead first, and campaign again
  stop       exit with its code
--delay passes before the command is started again on this machine.

If the leadership is lost (the store was unavailable for too long), the command and
what it has started get SIGTERM, and SIGKILL after --grace, before anybody else can be
elected, even while locker is stopped (SIGSTOP). But if somebody breaks the lock, the
next candidate is elected at once. Then locker campaigns again.

SIGTERM and SIGINT go to the command; when it has ended, locker steps down and exits
with its code; a candidate that does not lead exits with 0. SIGHUP does the same if locker
was started on a terminal, which has gone by then. Other signals go to the command alone.

The environment of the command contains LOCKER_NAME, LOCKER_TOKEN (the fencing token of the
term), LOCKER_OWNER and LOCKER_RUN_ID.`,
		Example: `  locker elect scheduler -- ./scheduler
  locker elect sweep --on-success restart --delay 10s -- ./sweep-once.sh
  locker elect web --note "$(hostname):8080" --on-failure stop -- ./server`,
		Args: e.split,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.do(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&e.onSuccess, "on-success", restart, "`WHAT` follows when the command ends with code 0: restart, step-down or stop")
	f.StringVar(&e.onFailure, "on-failure", stepDown, "`WHAT` follows when it ends with another code")
	e.delay = time.Second
	addDuration(f, &e.delay, "delay", "", "`DURATION` before the command is started again")
	f.StringVar(&e.id, "id", "", "`ID` of this candidate (default: one that names this process)")
	e.lease.add(f, "`DURATION` after which a leader that was killed is replaced (default: the URL's ttl, or 15s)")
	a.addVoice(f)
	policies := cobra.FixedCompletions([]string{restart, stepDown, stop}, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("on-success", policies)
	_ = cmd.RegisterFlagCompletionFunc("on-failure", policies)
	return cmd
}

func (e *elect) split(cmd *cobra.Command, args []string) error {
	names, err := splitArgs(cmd, args, e.program)
	if err == nil && len(names) > 1 {
		err = fmt.Errorf("%d names: want one", len(names))
	}
	if err == nil {
		e.name = names[0]
	}
	return err
}

func (e *elect) do(ctx context.Context) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := e.program.find(); err != nil {
		return err
	}
	client, err := e.openLeased(ctx, &e.lease, election.DefaultTTL, locker.WithReleaseTimeout(releaseTimeout), locker.WithObserver(e.observe))
	if err != nil {
		return err
	}
	defer client.Close()
	e.client = client
	candidate, err := election.New(client, e.name, e.options()...)
	if err != nil {
		return err
	}
	e.terminal = hasTerminal()
	e.signals = catchForwarded()
	defer e.signals.stop()
	e.ownSignals()
	if ctx.Err() != nil { // a signal came before the candidacy
		return ctx.Err()
	}
	return e.campaign(context.WithoutCancel(ctx), candidate)
}

func (e *elect) check() error {
	for flag, what := range map[string]string{"--on-success": e.onSuccess, "--on-failure": e.onFailure} {
		if what != restart && what != stepDown && what != stop {
			return usage(fmt.Errorf("%s %s: want %s, %s or %s", flag, what, restart, stepDown, stop))
		}
	}
	if e.delay < 0 {
		return usage(fmt.Errorf("--delay %v: want zero or more", e.delay))
	}
	return nil
}

func (e *elect) options() []election.Option {
	opts := []election.Option{election.WithTTL(e.lease.ttl), election.WithNote(e.lease.note(e.program))}
	if e.id != "" {
		opts = append(opts, election.WithID(e.id))
	}
	return opts
}

// errPause, returned by lead, makes campaign wait before the next term.
var errPause = errors.New("step down and wait")

// campaign leads whenever it is elected, until a signal or the end of the command ends
// the candidacy.
func (e *elect) campaign(ctx context.Context, candidate *election.Election) error {
	ctx, e.leave = context.WithCancel(ctx)
	defer e.leave()
	defer e.relay()()
	for {
		err := candidate.Run(ctx, e.lead)
		switch {
		case errors.Is(err, errPause):
			retry.Sleep(ctx, e.delay, nil)
		case err == nil && e.code != 0:
			return exit(e.code, nil, "")
		case ctx.Err() != nil && isEnd(err):
			return nil
		default:
			return err
		}
	}
}

// lead is one term: it runs the command again and again.
func (e *elect) lead(ctx context.Context, term *election.Term) error {
	lock, _ := locker.FromContext(ctx) // a term has one
	env := []string{
		"LOCKER_NAME=" + e.name, fmt.Sprintf("LOCKER_TOKEN=%d", term.Token()), "LOCKER_OWNER=" + lock.Owner(),
	}
	for e.begin() {
		code, err := e.program.run(ctx, e.app, e.signals, e.lease.grace, env, lock.Deadline)
		ending := e.end()
		what := e.onFailure
		if code == 0 {
			what = e.onSuccess
		}
		switch {
		case err != nil && !errors.Is(err, supervise.ErrNotValid):
			return err
		case term.Err() != nil && !ending:
			return nil // lost: the observer has said so, and Run campaigns again
		case what == stop && !ending && !stillHeld(ctx, e.client, lock):
			e.say("%s: the leadership was lost while the command ran", e.name)
			return nil // as if it had been noticed in time
		case ending || what == stop:
			e.code = code
			return election.ErrResign
		case what == stepDown:
			return errPause
		}
		if !retry.Sleep(ctx, e.delay, nil) || ctx.Err() != nil {
			return nil //nolint:nilerr // Run knows why
		}
	}
	return election.ErrResign
}

// begin reports whether the command may be started. From then on the command gets the
// signals, but none that came too late for the previous one.
func (e *elect) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signals.begin()
	e.running = !e.ending
	return e.running
}

// end is the end of the command; it reports whether locker is to end, too.
func (e *elect) end() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
	return e.ending
}

// relay passes signals to the command while it runs. SIGINT, SIGTERM and, on a terminal,
// SIGHUP, which says that the terminal has gone, end the candidacy too: at once if the command
// does not run, else when it has ended. SIGQUIT ends it only if the command does not run.
func (e *elect) relay() (stop func()) {
	caught := e.signals.ch
	passed := make(chan os.Signal, cap(caught))
	e.signals = &forwarded{ch: passed, dropped: e.signals.dropped}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case sig := <-caught:
				e.signalled(sig, passed)
			case <-done:
				signal.Stop(caught)
				return
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
	}
}

func (e *elect) signalled(sig os.Signal, passed chan<- os.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ending = e.ending || sig == syscall.SIGTERM || sig == os.Interrupt || sig == syscall.SIGHUP && e.terminal
	switch {
	case e.running:
		select {
		case passed <- sig:
		default: // as the kernel does with one that is pending
		}
	case e.ending, sig == syscall.SIGQUIT:
		e.ending = true
		e.leave()
	}
}

// observe says what happens to the lock of the leader, and once why there is none.
func (e *elect) observe(ctx context.Context, ev locker.Event) {
	if ev.Name != e.name {
		return // a lock that notifies observers
	}
	switch ev.Kind {
	case locker.EventWaiting: // the store answers
		e.trouble(nil)
		e.detail("%s: campaigning", e.name)
		return
	case locker.EventAcquired:
		e.trouble(nil)
	case locker.EventFailed:
		if !isEnd(ev.Err) {
			e.trouble(ev.Err)
		}
	}
	e.narrator.observe(ctx, ev)
}

// trouble says why a campaign has failed, unless the one before it had failed in the same way: the texts
// of one outage differ, as by the ports of connections.
func (e *elect) trouble(err error) {
	e.mu.Lock()
	code := exitCode(err)
	again := e.failing == code
	e.failing = code
	e.mu.Unlock()
	if err != nil && !again {
		e.say("%s: cannot campaign, will try again: %v", e.name, err)
	}
}
