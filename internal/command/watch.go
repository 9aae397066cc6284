package command

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

func newWatch(a *app) *cobra.Command {
	interval := time.Second
	var by order
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Watch locks live",
		Long: `Watch the locks that somebody holds or waits for; with PREFIX, those whose names begin
with it. On a terminal it draws the table of locker list anew after each poll; elsewhere, and
with --json, there is one line for each change of a lock's holders and waiters. Ctrl-C ends it.

It reads all queues every --interval, and less often if that takes long: it uses the
store at most a fifth of the time. If the store does not answer, it says so and goes on.`,
		Example: `  locker watch
  locker watch order: --interval 5s --sort-by waiters
  locker watch --json | jq 'select(.waiters > 10)'`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval < 100*time.Millisecond {
				return usage(fmt.Errorf("--interval %v: want at least 100ms", interval))
			}
			store, err := a.storeName()
			if err != nil {
				return err
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			w := &watcher{app: a, c: c, prefix: prefixOf(args), interval: interval}
			if a.json || !isTerminal(a.Out) || os.Getenv("TERM") == "dumb" {
				return w.run(cmd.Context(), (&changes{app: a}).show)
			}
			return w.run(cmd.Context(), (&screen{app: a, store: store, prefix: w.prefix, by: by}).show)
		},
	}
	addSortBy(cmd.Flags(), &by)
	addDuration(cmd.Flags(), &interval, "interval", "", "poll once in this `DURATION`")
	return cmd
}

// watcher reads the queues again and again.
type watcher struct {
	*app
	c        *locker.Client
	prefix   string
	interval time.Duration
}

// reading is what one poll has read.
type reading struct {
	at     time.Time
	took   time.Duration
	queues []locker.Queue
	err    error
}

func (w *watcher) read(ctx context.Context) reading {
	begun := time.Now()
	queues, err := readQueues(ctx, w.c, w.prefix)
	return reading{at: time.Now(), took: time.Since(begun), queues: queues, err: err}
}

// pause is how long to wait after a reading.
func (w *watcher) pause(l reading) time.Duration { return max(w.interval-l.took, 4*l.took) }

// run shows each reading until ctx ends, or nobody reads.
func (w *watcher) run(ctx context.Context, show func(reading)) error {
	l := w.read(ctx)
	if l.err != nil { // a store that was never there is an error, not an outage
		return l.err
	}
	for ; ctx.Err() == nil; l = w.read(ctx) {
		if show(l); w.out.err != nil {
			return w.out.err
		}
		retry.Sleep(ctx, w.pause(l), nil)
	}
	return context.Cause(ctx)
}
