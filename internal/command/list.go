package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newList(a *app) *cobra.Command {
	by := 0
	shown := usualColumns
	wide := false
	cmd := &cobra.Command{
		Use:     "list [PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List the locks that somebody holds or waits for",
		Long: `List the locks that somebody holds or waits for; with PREFIX, those whose names begin
with it.

HELD is how long the first holder has held the lock, LEASE how long it keeps the lock
without another renewal, LONGEST the longest wait. On most stores this reads
everything under the store's prefix.

On a terminal names, holders and notes that are too long for it are cut, unless --wide is
given. --columns chooses the columns and their order; HOLDERS is the number of holders, TOKEN
the fencing token of the first. With --json each lock is one line, which has everything.`,
		Example: `  locker list
  locker list order: --sort-by waiters
  locker list --columns name,holder,held,token
  locker list --json | jq -r 'select(.waiters > 10) | .name'`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			queues, err := readQueues(cmd.Context(), c, prefixOf(args))
			if err != nil {
				return err
			}
			now := time.Now()
			sortQueues(by, queues, now)
			if a.json {
				for _, q := range queues {
					if err := a.print(newQueueJSON(q, now), nil); err != nil {
						return err
					}
				}
				return nil
			}
			if len(queues) == 0 {
				fmt.Fprintln(a.Err, noneWith(prefixOf(args)))
				return nil
			}
			head, rows := tableOf(shown, queues, now)
			width := columns(a.Out)
			if wide {
				width = 0
			}
			return writeTable(a.Out, width, head, rows)
		},
	}
	cmd.Flags().BoolVar(&wide, "wide", false, "cut nothing, however long it is")
	addColumns(cmd.Flags(), &shown)
	addSortBy(cmd.Flags(), &by)
	return cmd
}

// noneWith says that there are no locks with the prefix.
func noneWith(prefix string) string {
	if prefix == "" {
		return "nobody holds a lock or waits for one"
	}
	return "nobody holds or waits for a lock whose name begins with " + printable(prefix)
}

// prefixOf is the optional argument PREFIX.
func prefixOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
