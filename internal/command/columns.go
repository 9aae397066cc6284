package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// moreColumns are those of --columns besides the ones that are always shown.
var moreColumns = []string{"HOLDERS", "TOKEN"}

// chosenColumns is the value of --columns: indexes in columnHeads. Nil: those of summaryHead.
type chosenColumns []int

// columnHeads are the heads of all columns that there are.
func columnHeads() []string { return slices.Concat(summaryHead, moreColumns) }

func addColumns(flags *pflag.FlagSet, c *chosenColumns) {
	flags.Var(c, "columns", "show these `COLUMNS`, in this order: "+columnNames())
}

// columnNames is the list of all columns, as --columns takes it.
func columnNames() string { return strings.ToLower(strings.Join(columnHeads(), ",")) }

// String implements pflag.Value.
func (c *chosenColumns) String() string {
	return strings.ToLower(strings.Join(c.of(columnHeads()), ","))
}

// Type implements pflag.Value.
func (*chosenColumns) Type() string { return "COLUMNS" }

// Set implements pflag.Value.
func (c *chosenColumns) Set(text string) error {
	var chosen chosenColumns
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(columnHeads(), strings.ToUpper(strings.TrimSpace(name)))
		if i < 0 {
			return fmt.Errorf("there is no column %q: want some of %s", name, columnNames())
		}
		chosen = append(chosen, i)
	}
	*c = chosen
	return nil
}

// of are the chosen ones of the cells of all columns.
func (c *chosenColumns) of(cells []string) []string {
	chosen := make([]string, len(*c))
	for i, column := range *c {
		chosen[i] = cells[column]
	}
	return chosen
}

// table is what a list of queues shows: its head, and a row for each of them.
func (c *chosenColumns) table(queues []summary) (head []string, rows [][]string) {
	if len(*c) == 0 {
		for _, q := range queues {
			rows = append(rows, q.cells())
		}
		return summaryHead, rows
	}
	for _, q := range queues {
		rows = append(rows, c.of(append(q.cells(), q.holders, q.token)))
	}
	return c.of(columnHeads()), rows
}
