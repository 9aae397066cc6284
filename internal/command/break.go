package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
)

func newBreak(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "break NAME [TOKEN | NAME...]",
		Short: "Take locks away from their holders",
		Long: `Take a lock, or several, away from its holders or, with a TOKEN, remove the one ticket that
has it, a waiting one too. It shows who would lose it, and asks for confirmation, once.

Use it for a holder that cannot be stopped in another way. The lock is free at once.
A holder that is alive is notified by the store, or learns of it at its next renewal
(after a third of its TTL at most). Until then two processes may believe that they
hold the lock, and only the fencing token protects the resource. Only the tickets
that were shown are removed, each by its token: whoever is granted the lock meanwhile
keeps it.

If a lock of several is held by nobody, or its holder has changed meanwhile, the others
are broken all the same, and the exit code is 1. A second argument that is a number
is a token.`,
		Example: `  locker break nightly-report
  locker break --yes nightly-report 1763791201234567
  locker break import-1 import-2 import-3`,
		Args:              arguments(1, math.MaxInt),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, number, err := toBreak(args)
			if err != nil {
				return err
			}
			if !yes && !isTerminal(a.In) {
				return exit(ExitUsage, errors.New("cannot ask for confirmation: standard input is not a terminal"),
					"locker inspect "+shellWord(names[0])+", then locker break --yes with the token that it shows")
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.breakLocks(cmd.Context(), c, names, number, yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// toBreak are the names, each once, or the one name and its token; 0: none is given.
func toBreak(args []string) (names []string, number uint64, err error) {
	for i, arg := range args {
		switch isNumber := arg != "" && strings.Trim(arg, "0123456789") == ""; {
		case i > 0 && isNumber && len(args) > 2:
			return nil, 0, usage(fmt.Errorf("%s is a number: a token is for one lock, and a lock with such a name must come first", arg))
		case i > 0 && isNumber:
			number, err = tokenOf(arg)
		case !slices.Contains(names, arg):
			names = append(names, arg)
		}
	}
	return names, number, err
}

// tokenOf is the argument TOKEN.
func tokenOf(arg string) (uint64, error) {
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || n == 0 {
		return 0, usage(fmt.Errorf("token %q: want a number greater than zero, as locker inspect shows it", arg))
	}
	return n, nil
}

// breakLocks breaks what is held of the names. A lock that cannot be broken keeps none of the others,
// but an error of the store ends it.
func (a *app) breakLocks(ctx context.Context, c *locker.Client, names []string, number uint64, yes bool) error {
	var all []*breaking
	var failed []error
	for _, name := range names {
		q, err := c.Inspect(ctx, name)
		if err != nil {
			return err
		}
		if losers, err := losersOf(q, number); err != nil {
			failed = append(failed, err)
		} else {
			all = append(all, &breaking{name: name, tickets: losers})
		}
	}
	if len(all) == 0 {
		return together(failed)
	}
	now := time.Now()
	if !yes {
		if err := a.confirmBreak(ctx, all, now); err != nil {
			return err
		}
	}
	for _, b := range all {
		b.run(ctx, c)
		if b.err != nil {
			failed = append(failed, b.err)
		}
		if b.err != nil && !errors.Is(b.err, locker.ErrLost) {
			break
		}
	}
	return errors.Join(a.printBroken(all, now, !yes), together(failed))
}

// together is what kept locks from being broken, with the exit code and the proposal of the
// last of them: an error of the store comes last.
func together(failed []error) error {
	if len(failed) < 2 {
		return errors.Join(failed...)
	}
	last := failed[len(failed)-1]
	var coded *exitError
	if errors.As(last, &coded) {
		return exit(coded.code, errors.Join(failed...), "locker list shows who holds them now")
	}
	return exit(exitCode(last), errors.Join(failed...), "locker ping")
}

// breaking is a lock to be broken, and what came of it.
type breaking struct {
	name         string
	tickets      []locker.Ticket // to be removed
	broken, gone []locker.Ticket // removed; went by themselves
	err          error
}

// run removes all tickets, and goes on if one has gone by itself.
func (b *breaking) run(ctx context.Context, c *locker.Client) {
	for _, t := range b.tickets {
		err := c.Break(ctx, b.name, t.Token)
		switch {
		case errors.Is(err, locker.ErrLost): // not ExitLost: this process has lost no lock
			b.gone = append(b.gone, t)
			b.err = exit(ExitFailure, err, "locker inspect "+shellWord(b.name))
		case err != nil:
			b.err = err
			return
		default:
			b.broken = append(b.broken, t)
		}
	}
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
	return nil, exit(ExitFailure, err, "locker list shows all locks, locker inspect "+shellWord(q.Name)+" the tokens of this one")
}

// errDeclined is the answer no.
var errDeclined = errors.New("nothing was removed")

// confirmBreak shows who would lose the locks, and asks.
func (a *app) confirmBreak(ctx context.Context, all []*breaking, now time.Time) error {
	if err := writeLosers(a.Err, all, now, func(b *breaking) []locker.Ticket { return b.tickets }); err != nil {
		return err
	}
	tickets, from := 0, paint(a.Err, bold, printable(all[0].name))
	for _, b := range all {
		tickets += len(b.tickets)
	}
	if len(all) > 1 {
		from = fmt.Sprintf("%d locks", len(all))
	}
	fmt.Fprint(a.Err, "Who holds it now goes on until it learns that it has lost it.\n")
	return a.confirm(ctx, fmt.Sprintf("Remove %s from %s? [y/N] ", count(tickets, "ticket", "tickets"), from))
}

// writeLosers writes tickets of each lock, with its name if there are several.
func writeLosers(w io.Writer, all []*breaking, now time.Time, of func(*breaking) []locker.Ticket) error {
	if len(all) == 1 {
		return writeTickets(w, of(all[0]), now)
	}
	var rows [][]string
	for _, b := range all {
		for _, t := range of(b) {
			rows = append(rows, append([]string{printable(b.name)}, ticketCells(w, t, now)...))
		}
	}
	return writeTable(w, append([]string{"NAME"}, ticketHead...), rows)
}

// printBroken prints what came of each lock. If a question has shown the tickets, they are not
// shown again.
func (a *app) printBroken(all []*breaking, now time.Time, asked bool) error {
	anything := false
	for _, b := range all {
		if len(b.broken)+len(b.gone) == 0 { // the store failed
			continue
		}
		anything = anything || len(b.broken) > 0
		result := struct {
			Name   string       `json:"name"`
			Broken []ticketJSON `json:"broken"`
			Gone   []ticketJSON `json:"gone,omitempty"`
		}{b.name, ticketsJSON(b.broken, now), ticketsJSON(b.gone, now)}
		if err := a.print(result, b.write); err != nil {
			return err
		}
	}
	if asked || a.json || !anything {
		return nil
	}
	return writeLosers(a.Out, all, now, func(b *breaking) []locker.Ticket { return b.broken })
}

// write says what came of it.
func (b *breaking) write(w io.Writer) (err error) {
	if n := len(b.broken); n > 0 {
		_, err = fmt.Fprintf(w, "%s: %s removed\n", printable(b.name), count(n, "ticket", "tickets"))
	}
	if n := len(b.gone); n > 0 && err == nil {
		_, err = fmt.Fprintf(w, "%s: %s had gone meanwhile\n", printable(b.name), count(n, "ticket", "tickets"))
	}
	return err
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
		return exit(ExitFailure, errDeclined, "")
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return context.Cause(ctx)
	}
}
