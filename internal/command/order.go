package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockerproject/locker"
)

// order is a way to sort queues: by a column, what is largest first. Those that are equal
// stay in the order of their names.
type order struct {
	name    string
	column  int // in summaryHead
	compare func(a, b locker.Queue, now time.Time) int
}

var orders = []order{
	{"name", 0, func(a, b locker.Queue, _ time.Time) int { return strings.Compare(a.Name, b.Name) }},
	{"waiters", 4, func(a, b locker.Queue, _ time.Time) int {
		_, na := tally(a)
		_, nb := tally(b)
		return cmp.Compare(nb, na)
	}},
	{"longest", 5, func(a, b locker.Queue, now time.Time) int {
		return cmp.Compare(longestWait(b, now), longestWait(a, now))
	}},
	{"held", 2, func(a, b locker.Queue, now time.Time) int { return cmp.Compare(heldFor(b, now), heldFor(a, now)) }},
}

func (o order) apply(queues []locker.Queue, now time.Time) {
	slices.SortStableFunc(queues, func(a, b locker.Queue) int { return o.compare(a, b, now) })
}

// heldFor is how long the first holder holds already.
func heldFor(q locker.Queue, now time.Time) time.Duration {
	if len(q.Tickets) == 0 || !q.Tickets[0].Held {
		return 0
	}
	return age(q.Tickets[0], now)
}

// sortBy is the value of --sort-by: an index in orders.
type sortBy int

func addSortBy(flags *pflag.FlagSet, s *sortBy) {
	flags.Var(s, "sort-by", "sort by `COLUMN`: name, waiters, longest or held")
}

// String implements pflag.Value.
func (s *sortBy) String() string { return orders[*s].name }

// Type implements pflag.Value.
func (*sortBy) Type() string { return "COLUMN" }

// Set implements pflag.Value.
func (s *sortBy) Set(text string) error {
	i := slices.IndexFunc(orders, func(o order) bool { return o.name == strings.ToLower(text) })
	if i < 0 {
		return fmt.Errorf("want name, waiters, longest or held")
	}
	*s = sortBy(i)
	return nil
}
