package command

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockerproject/locker"
)

// A column of a list of queues.
type column struct {
	head string
	cell func(q locker.Queue, now time.Time) string
}

// allColumns are those that --columns chooses from. The first ones are shown without it.
var allColumns = []column{
	{"NAME", func(q locker.Queue, _ time.Time) string { return printable(q.Name) }},
	{"HOLDER", ofHolder("-", func(q locker.Queue, _ time.Time) string {
		text := printable(q.Tickets[0].Owner)
		if holders, _ := tally(q); holders > 1 {
			text += fmt.Sprintf(" +%d", holders-1)
		}
		return text
	})},
	{"HELD", ofHolder("-", func(q locker.Queue, now time.Time) string { return since(q.Tickets[0], now) })},
	{"LEASE", ofHolder("-", func(q locker.Queue, _ time.Time) string { return short(q.Tickets[0].Remaining) })},
	{"WAITERS", func(q locker.Queue, _ time.Time) string { return strconv.Itoa(waitersOf(q)) }},
	{"LONGEST", func(q locker.Queue, now time.Time) string {
		if wait := longestWait(q, now); wait > 0 {
			return short(wait)
		}
		return "-"
	}},
	{"NOTE", ofHolder("", func(q locker.Queue, _ time.Time) string { return printable(q.Tickets[0].Note) })},
	{"HOLDERS", func(q locker.Queue, _ time.Time) string { return strconv.Itoa(len(q.Tickets) - waitersOf(q)) }},
	{"TOKEN", ofHolder("-", func(q locker.Queue, _ time.Time) string { return token(q.Tickets[0]) })},
}

var usualColumns = allColumns[:7]

// ofHolder is a cell that speaks of the first holder; none is what it has if nobody holds.
func ofHolder(none string, cell func(locker.Queue, time.Time) string) func(locker.Queue, time.Time) string {
	return func(q locker.Queue, now time.Time) string {
		if waitersOf(q) == len(q.Tickets) {
			return none
		}
		return cell(q, now)
	}
}

func waitersOf(q locker.Queue) int {
	_, waiters := tally(q)
	return waiters
}

// longestWait is the age of the waiter that waits longest.
func longestWait(q locker.Queue, now time.Time) (longest time.Duration) {
	for _, t := range q.Tickets {
		if !t.Held {
			longest = max(longest, age(t, now))
		}
	}
	return longest
}

// tableOf is a list of queues as a table.
func tableOf(columns []column, queues []locker.Queue, now time.Time) (head []string, rows [][]string) {
	for _, c := range columns {
		head = append(head, c.head)
	}
	for _, q := range queues {
		var row []string
		for _, c := range columns {
			row = append(row, c.cell(q, now))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// addColumns adds --columns.
func addColumns(flags *pflag.FlagSet, chosen *[]column) {
	heads, _ := tableOf(allColumns, nil, time.Time{})
	known := strings.ToLower(strings.Join(heads, ","))
	flags.Func("columns", "show these `COLUMNS`, in this order: "+known, func(text string) error {
		*chosen = nil
		for name := range strings.SplitSeq(text, ",") {
			i := slices.Index(heads, strings.ToUpper(strings.TrimSpace(name)))
			if i < 0 {
				return fmt.Errorf("there is no column %q: want some of %s", name, known)
			}
			*chosen = append(*chosen, allColumns[i])
		}
		return nil
	})
}

// orders are the ways to sort queues, each by a column: what is largest first. Those that are
// equal stay in the order of their names.
var orders = []struct {
	column int // of allColumns
	size   func(q locker.Queue, now time.Time) time.Duration
}{
	{0, func(locker.Queue, time.Time) time.Duration { return 0 }},
	{4, func(q locker.Queue, _ time.Time) time.Duration { return time.Duration(waitersOf(q)) }},
	{5, longestWait},
	{2, func(q locker.Queue, now time.Time) time.Duration {
		if waitersOf(q) == len(q.Tickets) {
			return 0
		}
		return age(q.Tickets[0], now)
	}},
}

// sortQueues sorts queues, which are in the order of their names, in one of the orders.
func sortQueues(by int, queues []locker.Queue, now time.Time) {
	size := orders[by].size
	slices.SortStableFunc(queues, func(a, b locker.Queue) int { return cmp.Compare(size(b, now), size(a, now)) })
}

// addSortBy adds --sort-by, whose value is an index in orders.
func addSortBy(flags *pflag.FlagSet, by *int) {
	flags.Func("sort-by", "sort by `COLUMN`: name, waiters, longest or held (default name)", func(text string) error {
		for i, o := range orders {
			if strings.EqualFold(allColumns[o.column].head, text) {
				*by = i
				return nil
			}
		}
		return errors.New("want name, waiters, longest or held")
	})
}
