package command

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/queues"
)

func newList(a *app) *cobra.Command {
	var by order
	cmd := &cobra.Command{
		Use:     "list [PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List the locks that somebody holds or waits for",
		Long: `List the locks that somebody holds or waits for; with PREFIX, those whose names begin
with it.

HELD is how long the first holder has held the lock, LEASE how long it keeps the lock
without another renewal, LONGEST the longest wait. On most stores this reads
everything under the store's prefix. With --json each lock is one line, which has everything.`,
		Example: `  locker list
  locker list order: --sort-by waiters
  locker list --json | jq -r 'select(.waiters > 10) | .name'`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := readQueues(cmd.Context(), c, prefixOf(args))
			if err != nil {
				return err
			}
			now := time.Now()
			if by != nil {
				slices.SortStableFunc(list, func(a, b locker.Queue) int { return cmp.Compare(by(b, now), by(a, now)) })
			}
			switch {
			case a.json:
				for _, q := range list {
					a.print(newQueueJSON(q, now), nil)
				}
			case len(list) == 0:
				fmt.Fprintln(a.Err, noneWith(prefixOf(args)))
			default:
				writeTable(a.out, listHead, listRows(list, now))
			}
			return nil
		},
	}
	cmd.Flags().Func("sort-by", "sort by `COLUMN`: name, waiters, longest or held (default name)", func(text string) (err error) {
		var known bool
		if by, known = orders[strings.ToLower(text)]; !known {
			err = errors.New("want name, waiters, longest or held")
		}
		return err
	})
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

var listHead = []string{"NAME", "HOLDER", "HELD", "LEASE", "WAITERS", "LONGEST", "NOTE"}

// listRows are queues in rows of a table for people.
func listRows(list []locker.Queue, now time.Time) [][]string {
	rows := make([][]string, len(list))
	for i, q := range list {
		holders, waiters, longestWaiter := queues.Tally(q)
		holder, held, lease, longest, note := "-", "-", "-", "-", ""
		if holders > 0 {
			first := q.Tickets[0]
			holder, held, lease, note = printable(first.Owner), since(first, now), short(first.Remaining), printable(first.Note)
		}
		if holders > 1 {
			holder += fmt.Sprintf(" +%d", holders-1)
		}
		if wait := age(longestWaiter, now); wait > 0 {
			longest = short(wait)
		}
		rows[i] = []string{printable(q.Name), holder, held, lease, strconv.Itoa(waiters), longest, note}
	}
	return rows
}

// An order says what is large about a queue: the largest comes first. Queues that are equal stay
// in the order of their names, as all do with nil.
type order func(q locker.Queue, now time.Time) time.Duration

// orders are the values of --sort-by.
var orders = map[string]order{
	"name": nil,
	"waiters": func(q locker.Queue, _ time.Time) time.Duration {
		_, waiters, _ := queues.Tally(q)
		return time.Duration(waiters)
	},
	"longest": func(q locker.Queue, now time.Time) time.Duration {
		_, _, longest := queues.Tally(q)
		return age(longest, now)
	},
	"held": func(q locker.Queue, now time.Time) time.Duration {
		if first := q.Tickets[0]; first.Held {
			return age(first, now)
		}
		return 0
	},
}
