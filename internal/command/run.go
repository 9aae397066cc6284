package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
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
	owner       string

	names []string
}

func newRun(a *app) *cobra.Command {
	r := &run{app: a, program: &program{}}
	cmd := &cobra.Command{
		Use:   "run NAME [NAME...] [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Wait for the lock, or for all of several locks, run the command, release the lock, and
exit with the command's code. The lock is held for as long as the command runs.
Processes that the command leaves in the background go on without it.

The environment of the command contains
  LOCKER_NAME, LOCKER_TOKEN      the lock and its fencing token, if there is one lock
  LOCKER_NAME_1, LOCKER_TOKEN_1  … and so on for each lock, in the order given
  LOCKER_COUNT, LOCKER_OWNER     the number of locks, and whom they are held for
  LOCKER_RUN_ID                  a text that is unique to this run
They replace those of an enclosing locker run. All other variables are passed on, LOCKER_URL
too if it is set, but not --url.

If the lock is lost (the store was unavailable for too long, or somebody broke the
lock), the command and what it has started get SIGTERM, and SIGKILL after --grace, and
the exit code is 79. The lock counts as lost a little more than --grace before its
lease ends, so they have ended before the store grants the lock to anybody else, even
while locker is stopped (SIGSTOP): a second process, its guard, sees to that. There are
three exceptions. A lock that somebody breaks is free at once. Processes of another user
(sudo) are not killed, nor, on systems other than Linux, those in a process group of their
own. A guard that is killed while locker is stopped kills nothing. If the store reports
the loss only at the release, the exit code is 79, too.

If locker itself is killed, the command is killed with it, and the lock expires after
--ttl, or after --hold-at-least if that is longer.

With --hold-at-least the lock stays held until that long after its grant, even if the command
ends earlier: of several machines whose clocks differ, one runs the job in each period.
With --on-busy, a run that is skipped because another machine has begun one prints nothing.
If nobody has begun one for longer than --hold-at-least, the period was missed, and a line
on standard error says so.

Signals are passed on to the command and to its process group; Ctrl-C reaches them once.
What the command has put into a group of its own, as timeout and setsid do, is left to it.`,
		Example: `  locker run nightly-report -- ./report.sh
  locker run --try --on-busy 0 backup -- pg_dump -f out.sql    # skip it if it runs already
  locker run --wait 30s stock orders -- ./move.sh              # both locks or none
  locker run --limit 3 builds -- make                          # at most three at once
  locker run --try --on-busy 0 --hold-at-least 50m hourly -- ./hourly.sh   # once, on many machines
  locker run deploy -- sh -c 'curl -d token=$LOCKER_TOKEN https://deploy.example'`,
		Args: r.split,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.do(cmd.Context()) },
	}
	f := cmd.Flags()
	f.BoolVarP(&r.try, "try", "n", false, "do not wait: exit if somebody else has the lock")
	addDuration(f, &r.wait, "wait", "w", "wait for at most `DURATION`, as 30s, 5m or 30 (default: as long as it takes)")
	f.BoolVarP(&r.shared, "shared", "s", false, "share the lock with others who do the same, as readers")
	f.IntVar(&r.limit, "limit", 0, "be one of `N` who hold the lock at once; all have to give the same N")
	addDuration(f, &r.holdAtLeast, "hold-at-least", "", "keep the lock until `DURATION` after its grant, even if the command ends earlier")
	f.IntVarP(&r.onBusy, "on-busy", "E", ExitBusy, "exit with `CODE`, and no error, if somebody else has the lock")
	f.StringVar(&r.owner, "owner", "", "`ID` that locker inspect shows (default: one that names this process)")
	r.lease.add(f, "`DURATION` after which the lock of a locker that was killed ends (default: the URL's ttl, or 30s)")
	a.addVoice(f)
	f.SetInterspersed(true)
	cmd.SetFlagErrorFunc(flagOfFlock)
	return cmd
}

// split separates the names from the command. Errors in them are reported before
// the store is opened.
func (r *run) split(cmd *cobra.Command, args []string) error {
	names, err := splitArgs(cmd, args, r.program)
	for _, name := range names {
		if !slices.Contains(r.names, name) {
			r.names = append(r.names, name)
		}
	}
	return err
}

func (r *run) do(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := r.program.find(); err != nil {
		return err
	}
	n := &narrator{app: r.app, minHold: r.holdAtLeast}
	client, err := r.openLeased(ctx, &r.lease, locker.DefaultTTL, locker.WithReleaseTimeout(releaseTimeout), locker.WithObserver(n.observe))
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
	return r.hold(ctx, client, lock, signals)
}

// set reports whether a flag was given.
func (r *run) set(flag string) bool { return r.lease.flags.Changed(flag) }

func (r *run) check() error {
	switch {
	case r.try && r.set("wait"):
		return usage(errors.New("--try and --wait exclude each other"))
	case r.set("on-busy") && (r.onBusy < 0 || r.onBusy > 255):
		return usage(fmt.Errorf("--on-busy %d: want an exit code, 0 to 255", r.onBusy))
	case r.set("hold-at-least") && r.holdAtLeast <= 0:
		return usage(fmt.Errorf("--hold-at-least %v: want more than zero", r.holdAtLeast))
	}
	return nil
}

func (r *run) options() []locker.Option {
	opts := []locker.Option{locker.WithTTL(r.lease.ttl), locker.WithNote(r.lease.note(r.program))}
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
		r.skipped(ctx, client, err)
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

// skipped says that the command does not run because the lock is busy. Under --verbose, unless
// this is a job with a minimum hold that nobody has begun in this period: if the lock was
// granted longer ago than that, the last run has not ended, or its machine has died.
func (r *run) skipped(ctx context.Context, client *locker.Client, err error) {
	name := strings.Join(r.names, ", ")
	var refusal *locker.Error
	if errors.As(err, &refusal) && refusal.Name != "" {
		name = refusal.Name
	}
	if r.holdAtLeast == 0 || ranLately(ctx, client, name, r.holdAtLeast) {
		r.detail("busy: %s", textOf(err))
		return
	}
	holders := describeHolders(ctx, client, name)
	if holders == "" {
		holders = "somebody else had the lock"
	}
	r.say("%s: this run is skipped, and nobody has begun one within the last %v: %s", name, r.holdAtLeast, holders)
}

// ranLately reports whether the lock of that name is held by somebody who was granted it no
// longer ago than the minimum hold.
func ranLately(ctx context.Context, client *locker.Client, name string, hold time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := client.Inspect(ctx, name)
	return err == nil && slices.ContainsFunc(q.Tickets, func(t locker.Ticket) bool {
		return t.Held && !t.Since.IsZero() && time.Since(t.Since) <= hold
	})
}

// hold runs the command under the lock.
func (r *run) hold(ctx context.Context, client *locker.Client, lock *locker.Lock, signals *forwarded) error {
	signals.begin()
	r.ownSignals()
	if ctx.Err() != nil { // a signal came before the command
		return errors.Join(ctx.Err(), lock.Release(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	code, err := r.program.run(lock.Context(ctx), r.app, signals, r.lease.grace, lockEnv(lock, r.names), lock.Deadline)
	when := "while the command ran"
	if errors.Is(err, supervise.ErrNotValid) {
		when, err = "before the command was started", nil
	}
	if err != nil {
		return errors.Join(err, lock.Release(ctx))
	}
	lost, err := r.release(ctx, client, lock)
	if err != nil {
		r.say("%s: the store has not confirmed that the lock is free; at the latest it is after %v: %v",
			strings.Join(r.names, ", "), max(r.lease.ttl, r.holdAtLeast), storeError(err))
	}
	if len(lost) > 0 {
		return exit(ExitLost, fmt.Errorf("%s: the lock was lost %s", strings.Join(lost, ", "), when),
			"locker inspect "+nameWord(lost[0])+" shows who has it now; a store that was away for long asks for a longer --ttl")
	}
	if code != 0 {
		return exit(code, nil, "")
	}
	return nil
}

// release releases the lock, and returns the names that had been lost while the command ran.
// Many stores say so only when they are asked. Within the minimum hold nothing is released
// yet, so the queues are read.
func (r *run) release(ctx context.Context, client *locker.Client, lock *locker.Lock) (lost []string, err error) {
	lost = namesOf(lock, func(k *locker.Lock) bool { return errors.Is(k.Err(), locker.ErrLost) })
	if len(lost) == 0 && r.holdAtLeast > 0 {
		ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		lost = namesOf(lock, func(k *locker.Lock) bool { return !stillHeld(ctx, client, k) })
	}
	err = lock.Release(ctx)
	if !errors.Is(err, locker.ErrLost) {
		return lost, err
	}
	var known *locker.Error
	switch {
	case len(lost) > 0:
	case errors.As(err, &known) && known.Name != "":
		lost = []string{known.Name}
	default:
		lost = r.names
	}
	return lost, nil
}

// namesOf returns the names of those locks of a group that f reports.
func namesOf(lock *locker.Lock, f func(*locker.Lock) bool) (names []string) {
	for _, k := range lock.Locks() {
		if f(k) {
			names = append(names, k.Name())
		}
	}
	return names
}

// stillHeld reports whether the store has the ticket of a lock, or does not say.
func stillHeld(ctx context.Context, client *locker.Client, k *locker.Lock) bool {
	q, err := client.Inspect(ctx, k.Name())
	return err != nil || slices.ContainsFunc(q.Tickets, func(t locker.Ticket) bool { return t.Held && t.Token == k.Token() })
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

// outerEnv is the environment without the variables that an outer locker has set for its
// command: those of lockEnv, and no other that begins alike.
func outerEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		key, _, _ := strings.Cut(v, "=")
		return ofOuterLocker.MatchString(key)
	})
}

var ofOuterLocker = regexp.MustCompile(`^LOCKER_(COUNT|OWNER|(NAME|TOKEN)(_[0-9]+)?)$`)
