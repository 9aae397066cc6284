package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

// worse is how much of a figure may be lost from one run to the next: on machines whose
// processors are shared, the same ratio of two runs differs by up to a fifth.
const worse = 0.8

// A change is a figure of locker in two runs, as a ratio to another row of the same run.
type change struct {
	store, figure, beside string
	before, now           float64 // larger is better
}

func (c change) isWorse() bool { return c.now < c.before*worse }

// compared are the figures that are compared. Larger is better.
var compared = []struct {
	name string
	of   func(result) float64
}{
	{"cycles/s", cycles},
	{"32 names/s", parallelCycles},
	{"grants/s of 16 clients", grants},
	{"grants/s of 64 goroutines", shared},
	{"1 / hand-off", func(r result) float64 {
		if r.HandoffP50 == 0 {
			return 0
		}
		return 1 / r.HandoffP50.Seconds()
	}},
}

// compare returns the figures that both runs have. A figure is divided by that of the
// first other row of the store that has it in both runs, since the machines of the two
// runs may differ.
func compare(before, now []result) []change {
	var changes []change
	for _, r := range now {
		old := find(before, r.Store, r.Subject)
		if r.Subject != "locker" || old == nil {
			continue
		}
		for _, f := range compared {
			for _, other := range now {
				oldOther := find(before, r.Store, other.Subject)
				if other.Store != r.Store || other.Subject == r.Subject || oldOther == nil || f.of(other) == 0 || f.of(*oldOther) == 0 {
					continue
				}
				if f.of(r) != 0 && f.of(*old) != 0 {
					changes = append(changes, change{r.Store, f.name, other.Subject, f.of(*old) / f.of(*oldOther), f.of(r) / f.of(other)})
				}
				break
			}
		}
	}
	return changes
}

func find(rs []result, storeName, subject string) *result {
	i := slices.IndexFunc(rs, func(r result) bool { return r.Store == storeName && r.Subject == subject })
	if i < 0 {
		return nil
	}
	return &rs[i]
}

// worseStores returns the stores that have a figure that is worse.
func worseStores(changes []change) []string {
	var names []string
	for _, c := range changes {
		if c.isWorse() && !slices.Contains(names, c.store) {
			names = append(names, c.store)
		}
	}
	return names
}

// confirmed returns the changes that are worse in both measurements.
func confirmed(first, second []change) []change {
	var both []change
	for _, c := range second {
		same := func(f change) bool { return f.store == c.store && f.figure == c.figure && f.beside == c.beside }
		if i := slices.IndexFunc(first, same); i >= 0 && first[i].isWorse() && c.isWorse() {
			both = append(both, c)
		}
	}
	return both
}

func printChanges(w io.Writer, changes []change) {
	lines := [][]string{{"store", "figure", "beside", "before", "now", "now / before"}}
	for _, c := range changes {
		mark := ""
		if c.isWorse() {
			mark = " worse"
		}
		lines = append(lines, []string{
			c.store, c.figure, c.beside, fmt.Sprintf("%.2f", c.before), fmt.Sprintf("%.2f", c.now), fmt.Sprintf("%.2f", c.now/c.before) + mark,
		})
	}
	fmt.Fprintln(w)
	printAligned(w, lines)
}

func readJSON(file string) ([]result, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the user's own file
	if err != nil {
		return nil, err
	}
	var all []result
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, r := range all {
		all[i].rounds = []result{r} // the medians stand for the rounds
	}
	return all, nil
}
