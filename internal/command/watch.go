package command

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

func newWatch(a *app) *cobra.Command {
	w := &watcher{app: a, interval: time.Second}
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Watch locks live",
		Long: `Watch the locks that somebody holds or waits for; with PREFIX, those whose names begin
with it. There is one line for each lock, and then one for each change of a lock's holders
and waiters. Ctrl-C ends it.

It reads all queues every --interval, and less often if that takes long: it uses the
store at most a fifth of the time. If the store does not answer, it says so and goes on.`,
		Example: `  locker watch
  locker watch order: --interval 5s
  locker watch --json | jq 'select(.waiters > 10)'`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.interval < 100*time.Millisecond {
				return usage(fmt.Errorf("--interval %v: want at least 100ms", w.interval))
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return w.run(cmd.Context(), c, prefixOf(args))
		},
	}
	addDuration(cmd.Flags(), &w.interval, "interval", "", "poll once in this `DURATION`")
	return cmd
}

// watcher reads the queues again and again, and prints what changes.
type watcher struct {
	*app
	interval time.Duration

	seen map[string]locker.Queue
	down bool // the last reading failed
}

// run prints changes until ctx ends, or nobody reads.
func (w *watcher) run(ctx context.Context, c *locker.Client, prefix string) error {
	for {
		begun := time.Now()
		queues, err := readQueues(ctx, c, prefix)
		took := time.Since(begun)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			w.show(queues, prefix, begun.Add(took))
		case w.seen == nil: // a store that was never there is an error, not an outage
			return err
		case !w.down:
			w.down = true
			w.say("%v", err)
		}
		if w.out.err != nil {
			return w.out.err
		}
		retry.Sleep(ctx, max(w.interval-took, 4*took), nil)
	}
}

// changeJSON is a change as --json prints it.
type changeJSON struct {
	Time time.Time `json:"time"` // when it was seen
	queueJSON
}

// show prints the queues whose holders or waiters are others than before, and those that are
// empty now.
func (w *watcher) show(queues []locker.Queue, prefix string, at time.Time) {
	switch {
	case w.down:
		w.down = false
		w.say("the store answers again")
	case w.seen == nil && len(queues) == 0:
		w.say("%s", noneWith(prefix))
	}
	seen := w.seen
	w.seen = make(map[string]locker.Queue, len(queues))
	for _, q := range queues {
		w.seen[q.Name] = q
		if !reflect.DeepEqual(timeless(q), timeless(seen[q.Name])) {
			w.change(q, at)
		}
	}
	for name := range seen {
		if _, there := w.seen[name]; !there {
			w.change(locker.Queue{Name: name}, at)
		}
	}
}

// timeless returns the tickets of a queue without times: the remaining time changes by
// itself, and a store may compute another Since at each reading.
func timeless(q locker.Queue) []locker.Ticket {
	ts := make([]locker.Ticket, len(q.Tickets))
	for i, t := range q.Tickets {
		t.Remaining, t.Since = 0, time.Time{}
		ts[i] = t
	}
	return ts
}

func (w *watcher) change(q locker.Queue, at time.Time) {
	j := changeJSON{Time: at.UTC().Round(time.Millisecond), queueJSON: newQueueJSON(q, at)}
	w.print(j, func(out io.Writer) {
		state := "free"
		if j.Holders > 0 {
			first := q.Tickets[0]
			state = fmt.Sprintf("held by %s (token %d)", printable(first.Owner), first.Token)
		}
		if j.Holders > 1 {
			state += fmt.Sprintf(" +%d", j.Holders-1)
		}
		if j.Waiters > 0 {
			state += ", " + count(j.Waiters, "waiter", "waiters")
		}
		fmt.Fprintf(out, "%s  %s  %s\n", at.Format(time.TimeOnly), printable(q.Name), state)
	})
}
