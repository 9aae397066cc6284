package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/supervise"
)

// run is one call of locker run.
type run struct {
	*app
	*program
	lease leaseFlags

	try, shared bool
	wait        time.Duration
	limit       int
	holdAtLeast time.Duration
	onBusy      int
	note, owner string

	names []string
	set   func(flag string) bool // it was given
}

func newRun(a *app) *cobra.Command {
	r := &run{app: a, program: &program{}}
	cmd := &cobra.Command{
		Use:   "run NAME [NAME...] [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Waits for the lock, or for all of several locks, runs the command, releases the lock,
and exits with the command's code. The lock is held for as long as the command runs.
Processes that the command leaves in the background continue without it.

The environment of the command contains
  LOCKER_NAME, LOCKER_TOKEN      the lock and its fencing token, if there is one lock
  LOCKER_NAME_1, LOCKER_TOKEN_1  … and so on for each, in the order given
  LOCKER_COUNT, LOCKER_OWNER     the number of locks, and whom they are held for
  LOCKER_RUN_ID                  a text that is unique to this run
and everything else unchanged, LOCKER_URL too if it is set. --url is not passed on.

If the lock is lost (the store was unavailable for too long, or somebody broke the
lock), the command and what it has started get SIGTERM, and --grace later SIGKILL, and
the exit code is 79. The lock counts as lost a little more than --grace before its
lease ends, so all of them have ended before the store grants the lock to anybody else.
But a lock that somebody breaks is free at once. If locker itself is killed, the command
is killed with it, and the lock expires after --ttl.

Signals are passed on to the command and all that it has started; Ctrl-C reaches
them once.`,
		Example: `  locker run nightly-report -- ./report.sh
  locker run --try --on-busy 0 backup -- pg_dump -f out.sql    # skip it if it runs already
  locker run --wait 30s stock orders -- ./move.sh              # both locks or none
  locker run --limit 3 builds -- make                          # at most three at once
  locker run --try --on-busy 0 --hold-at-least 50m hourly -- ./hourly.sh   # once, on many machines
  locker run deploy -- sh -c 'curl -d token=$LOCKER_TOKEN https://deploy.example'`,
		Args: r.split,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.set = cmd.Flags().Changed
			return r.do(cmd.Context())
		},
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	f.BoolVar(&r.try, "try", false, "do not wait: exit if somebody else has the lock")
	f.DurationVar(&r.wait, "wait", 0, "wait for at most `DURATION`, as 30s or 5m (default: as long as it takes)")
	f.BoolVar(&r.shared, "shared", false, "share the lock with others who do, as readers")
	f.IntVar(&r.limit, "limit", 0, "be one of `N` who hold the lock at once; all have to give the same N")
	f.DurationVar(&r.holdAtLeast, "hold-at-least", 0, "keep the lock for at least `DURATION`, though the command, or locker, ends before")
	f.IntVar(&r.onBusy, "on-busy", ExitBusy, "exit with `CODE`, and print nothing, if somebody else has the lock")
	f.StringVar(&r.note, "note", "", "`TEXT` that locker inspect shows (default: the name of the command)")
	f.StringVar(&r.owner, "owner", "", "`ID` that locker inspect shows (default: one that names this process)")
	r.lease.add(f, "after this `DURATION` the lock of a locker that was killed ends (default: the URL's ttl, or 30s)")
	a.addVoice(f)
	f.SetInterspersed(true)
	return cmd
}

// split separates the names from the command. Errors in them are reported before
// the store is opened.
func (r *run) split(cmd *cobra.Command, args []string) error {
	names, err := splitArgs(cmd, args, r.program)
	r.names = names
	return err
}

func (r *run) do(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := r.program.find(); err != nil {
		return err
	}
	margin, err := r.lease.margin(r.app, locker.DefaultTTL)
	if err != nil {
		return err
	}
	n := &narrator{app: r.app}
	client, err := r.open(ctx, locker.WithSafetyMargin(margin), locker.WithReleaseTimeout(releaseTimeout), locker.WithObserver(n.observe))
	if err != nil {
		return err
	}
	defer client.Close()
	signals := catchForwarded()
	defer signals.stop()
	lock, err := n.acquire(ctx, client, r.names, r.options()...)
	if err != nil {
		return r.refused(ctx, client, err)
	}
	return r.hold(ctx, lock, signals)
}

func (r *run) check() error {
	switch {
	case r.try && r.set("wait"):
		return usage(errors.New("--try and --wait exclude each other"))
	case r.set("on-busy") && (r.onBusy < 0 || r.onBusy > 255):
		return usage(fmt.Errorf("--on-busy %d: want an exit code, 0 to 255", r.onBusy))
	case r.set("hold-at-least") && r.holdAtLeast <= 0:
		return usage(fmt.Errorf("--hold-at-least %v: want more than zero", r.holdAtLeast))
	case r.set("owner") && r.owner == "":
		return usage(errors.New("--owner is empty"))
	}
	return nil
}

func (r *run) options() []locker.Option {
	opts := []locker.Option{r.lease.option(), locker.WithNote(r.note)}
	if !r.set("note") {
		opts = append(opts, locker.WithNote(r.program.name()))
	}
	if r.try {
		opts = append(opts, locker.WithWait(0))
	}
	if r.set("wait") {
		opts = append(opts, locker.WithWait(r.wait))
	}
	if r.shared {
		opts = append(opts, locker.Shared())
	}
	if r.set("limit") {
		opts = append(opts, locker.Limit(r.limit))
	}
	if r.holdAtLeast > 0 {
		opts = append(opts, locker.WithMinHold(r.holdAtLeast))
	}
	if r.owner != "" {
		opts = append(opts, locker.WithOwner(r.owner))
	}
	return opts
}

// refused is the error of an acquisition. If somebody else has the lock, it says
// who.
func (r *run) refused(ctx context.Context, client *locker.Client, err error) error {
	switch {
	case errors.Is(err, locker.ErrUnsupported):
		return exit(ExitUsage, err, "a shorter --ttl, --grace or --hold-at-least; locker run --help")
	case exitCode(err) != ExitBusy:
		return err
	}
	if r.set("on-busy") {
		r.detail("busy: %v", err)
		return exit(r.onBusy, nil, "")
	}
	if r.quiet {
		return exit(ExitBusy, nil, "")
	}
	var refusal *locker.Error
	if errors.As(err, &refusal) {
		if holders := describeHolders(ctx, client, refusal.Name); holders != "" {
			err = fmt.Errorf("%w: %s", err, holders)
		}
	}
	return err
}

// hold runs the command under the lock.
func (r *run) hold(ctx context.Context, lock *locker.Lock, signals *forwarded) error {
	signals.begin()
	r.ownSignals()
	if ctx.Err() != nil { // a signal came before the command
		return errors.Join(ctx.Err(), lock.Release(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	code, err := r.program.run(lock.Context(ctx), r.app, signals, r.lease.grace, lockEnv(lock, r.names),
		func() bool { return lock.Err() == nil })
	when := "while the command ran"
	if errors.Is(err, supervise.ErrNotValid) {
		when, err = "before the command was started", nil
	}
	if err != nil {
		return errors.Join(err, lock.Release(ctx))
	}
	lost := lock.Err()
	if err := lock.Release(ctx); err != nil && lost == nil && !errors.Is(err, locker.ErrLost) {
		r.say("%s: the store has not confirmed that the lock is free; at the latest it is after %v: %v",
			strings.Join(r.names, ", "), max(r.lease.ttl, r.holdAtLeast), storeError(err))
	}
	if lost != nil {
		return exit(ExitLost, fmt.Errorf("%s: the lock was lost %s", strings.Join(r.names, ", "), when),
			"--verbose says why; longer outages of the store ask for a longer --ttl")
	}
	if code != 0 {
		return exit(code, nil, "")
	}
	return nil
}

// releaseTimeout is how long the command's exit code waits for a store that does
// not answer: once for the release, and once more for the end of the Client.
const releaseTimeout = 2 * time.Second

// storeError is the store's own part of an error of a release. The rest says that the
// release goes on in the background, but this process ends.
func storeError(err error) error {
	var failed *locker.Error
	if errors.As(err, &failed) {
		if own := errors.Unwrap(failed.Err); own != nil {
			return own
		}
	}
	return err
}

// lockEnv is the environment that describes its locks to the command. Fencing is per
// name: several locks have no token in common.
func lockEnv(lock *locker.Lock, names []string) []string {
	tokens := make(map[string]uint64)
	for _, k := range lock.Locks() {
		tokens[k.Name()] = k.Token()
	}
	env := []string{
		fmt.Sprintf("LOCKER_COUNT=%d", len(names)),
		"LOCKER_OWNER=" + lock.Locks()[0].Owner(),
	}
	if len(names) == 1 {
		env = append(env, "LOCKER_NAME="+names[0], fmt.Sprintf("LOCKER_TOKEN=%d", tokens[names[0]]))
	}
	for i, name := range names {
		env = append(env, fmt.Sprintf("LOCKER_NAME_%d=%s", i+1, name), fmt.Sprintf("LOCKER_TOKEN_%d=%d", i+1, tokens[name]))
	}
	return env
}

// outerEnv is the environment without the variables of an outer locker.
func outerEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		key, _, _ := strings.Cut(v, "=")
		switch {
		case key == "LOCKER_COUNT", key == "LOCKER_OWNER",
			strings.HasPrefix(key, "LOCKER_NAME"), strings.HasPrefix(key, "LOCKER_TOKEN"):
		default:
			env = append(env, v)
		}
	}
	return env
}
