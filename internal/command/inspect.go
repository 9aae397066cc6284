package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/queues"
)

func newInspect(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show who holds a lock, and who waits for it",
		Long: `Show the queue of one lock: who holds it and who waits for it, in order, with the
fencing token of each ticket.

FOR is how long a ticket has been held or waiting, LEASE how long the holder keeps the
lock without another renewal. A lock that nobody holds or waits for is free, which
is not an error.`,
		Example: `  locker inspect nightly-report
  locker inspect --json nightly-report | jq -r '.tickets[] | select(.held) | .owner'`,
		Args:              arguments(1, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			q, err := c.Inspect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			now := time.Now()
			a.print(newQueueJSON(q, now), func(w io.Writer) { writeQueue(w, q, now) })
			return nil
		},
	}
}

func writeQueue(w io.Writer, q locker.Queue, now time.Time) {
	holders, waiters, _ := queues.Tally(q)
	if holders+waiters == 0 {
		fmt.Fprintf(w, "%s is free: nobody holds it or waits for it\n", printable(q.Name))
		return
	}
	fmt.Fprintf(w, "%s: %s, %s\n", paint(w, bold, printable(q.Name)),
		count(holders, "holder", "holders"), count(waiters, "waiter", "waiters"))
	writeTickets(w, q.Tickets, now)
}
