package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
)

func newBreak(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "break NAME [TOKEN]",
		Short: "Take a lock away from its holders",
		Long: `Take a lock away from all its holders or, with a TOKEN, remove the one ticket that has it,
a waiting one too. It shows who would lose it, and asks for confirmation.

Use it for a holder that cannot be stopped in another way. The lock is free at once.
A holder that is alive is notified by the store, or learns of it at its next renewal
(after a third of its TTL at most). Until then two processes may believe that they
hold the lock, and only the fencing token protects the resource. Only the tickets
that were shown are removed, each by its token: whoever is granted the lock meanwhile
keeps it, and the exit code is 1.`,
		Example: `  locker break nightly-report
  locker break --yes nightly-report 1763791201234567`,
		Args:              arguments(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := tokenOf(args[1:])
			if err != nil {
				return err
			}
			if !yes && !isTerminal(a.In) {
				return exit(ExitUsage, errors.New("cannot ask for confirmation: standard input is not a terminal"),
					"locker inspect "+nameWord(args[0])+", then locker break --yes with the token that it shows")
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.breakLock(cmd.Context(), c, args[0], number, yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// tokenOf is the optional argument TOKEN; 0: none is given.
func tokenOf(args []string) (uint64, error) {
	if len(args) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil || n == 0 {
		return 0, usage(fmt.Errorf("token %q: want a number greater than zero, as locker inspect shows it", args[0]))
	}
	return n, nil
}

// breakLock removes the tickets of a lock, shows which, and goes on if one has gone by itself.
func (a *app) breakLock(ctx context.Context, c *locker.Client, name string, number uint64, yes bool) error {
	q, err := c.Inspect(ctx, name)
	if err != nil {
		return err
	}
	losers, err := losersOf(q, number)
	if err != nil {
		return err
	}
	now := time.Now()
	if !yes {
		if err := a.confirmBreak(ctx, name, losers, now); err != nil {
			return err
		}
	}
	var broken, gone []locker.Ticket
	var failure error
	for _, t := range losers {
		switch err := c.Break(ctx, name, t.Token); {
		case errors.Is(err, locker.ErrLost): // not ExitLost: this process has lost no lock
			gone = append(gone, t)
			failure = exit(ExitFailure, err, "locker inspect "+nameWord(name))
		case err != nil:
			a.printBroken(name, broken, gone, now, yes)
			return err
		default:
			broken = append(broken, t)
		}
	}
	a.printBroken(name, broken, gone, now, yes)
	return failure
}

// printBroken prints the tickets that were removed, and how many had gone. What a question has shown is not
// shown again.
func (a *app) printBroken(name string, broken, gone []locker.Ticket, now time.Time, show bool) {
	if len(broken)+len(gone) == 0 { // the store failed
		return
	}
	result := struct {
		Name   string       `json:"name"`
		Broken []ticketJSON `json:"broken"`
		Gone   []ticketJSON `json:"gone,omitempty"`
	}{name, ticketsJSON(broken, now), ticketsJSON(gone, now)}
	a.print(result, func(w io.Writer) {
		if n := len(broken); n > 0 {
			fmt.Fprintf(w, "%s: %s removed\n", printable(name), count(n, "ticket", "tickets"))
		}
		if n := len(gone); n > 0 {
			fmt.Fprintf(w, "%s: %s had gone meanwhile\n", printable(name), count(n, "ticket", "tickets"))
		}
		if show && len(broken) > 0 {
			writeTickets(w, broken, now)
		}
	})
}

// losersOf are the tickets to remove: the one with the given number or, for 0, all
// that are held.
func losersOf(q locker.Queue, number uint64) (losers []locker.Ticket, err error) {
	for _, t := range q.Tickets {
		if t.Token == number || number == 0 && t.Held {
			losers = append(losers, t)
		}
	}
	if len(losers) > 0 {
		return losers, nil
	}
	err = fmt.Errorf("nobody holds %q or waits for it", q.Name)
	switch {
	case number != 0 && len(q.Tickets) > 0:
		err = fmt.Errorf("no ticket with token %d is queued for %q", number, q.Name)
	case len(q.Tickets) > 0:
		err = fmt.Errorf("nobody holds %q now; to remove a waiter, give its token", q.Name)
	}
	return nil, exit(ExitFailure, err, "locker list shows all locks, locker inspect "+nameWord(q.Name)+" the tokens of this one")
}

// confirmBreak shows who would lose the lock, and asks.
func (a *app) confirmBreak(ctx context.Context, name string, losers []locker.Ticket, now time.Time) error {
	writeTickets(a.Err, losers, now)
	fmt.Fprint(a.Err, "Who holds it now goes on until it learns that it has lost it.\n")
	return a.confirm(ctx, fmt.Sprintf("Remove %s from %s? [y/N] ",
		count(len(losers), "ticket", "tickets"), paint(a.Err, bold, printable(name))))
}

// confirm asks a question at the terminal; all but yes is no.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprint(a.Err, question)
	answer := make(chan string, 1)
	go func() { // a read of a terminal cannot be ended: this lasts as long as the process
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		if !strings.HasSuffix(line, "\n") { // the end of input
			fmt.Fprintln(a.Err)
		}
		return exit(ExitFailure, errors.New("nothing was removed"), "")
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return context.Cause(ctx)
	}
}
