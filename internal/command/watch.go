package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command/quietterm"
)

func init() { quietterm.Restore() }

func newWatch(a *app) *cobra.Command {
	interval := time.Second
	by := 0
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Watch locks live",
		Long: `Watch the locks that somebody holds or waits for; with PREFIX, those whose names begin
with it. On a terminal they are a table that fills the screen; elsewhere, and with
--json, there is one line for each change of a lock's holders and waiters.

Keys: arrows or j and k to move, enter for all tickets of a lock, / to filter, c for
locks that somebody waits for, s to sort by another column, b to break a lock, space to
pause, ? for help, q to quit.

It reads all queues every --interval, and less often if that takes long: it uses the
store at most a fifth of the time. If the store does not answer, it says so and goes on.`,
		Example: `  locker watch
  locker watch order: --interval 5s
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
			w := &watcher{c: c, prefix: prefixOf(args), interval: interval}
			first := w.read(cmd.Context())
			if first.err != nil { // a store that was never there is an error, not an outage
				return first.err
			}
			if a.json || !isTerminal(a.Out) || os.Getenv("TERM") == "dumb" {
				return a.watchLines(cmd.Context(), w, first)
			}
			m := newWatchModel(cmd.Context(), w, store, a.Out, first)
			m.sort = by
			return a.watchScreen(cmd.Context(), m)
		},
	}
	addSortBy(cmd.Flags(), &by)
	addDuration(cmd.Flags(), &interval, "interval", "", "poll once in this `DURATION`")
	return cmd
}

// watcher reads the queues again and again.
type watcher struct {
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

// watchScreen shows the table until the user quits.
func (a *app) watchScreen(ctx context.Context, m watchModel) error {
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithoutSignalHandler(), tea.WithAltScreen(), tea.WithOutput(a.Out),
	}
	if isTerminal(a.In) { // else Bubble Tea opens the terminal itself
		options = append(options, tea.WithInput(a.In))
	}
	_, err := tea.NewProgram(m, options...).Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tea.ErrInterrupted):
		return interrupted
	}
	return err
}
