// Bench measures, in one run and interleaved, what a lock costs: the store
// used raw, this library, and the libraries people come from.
//
//	go run . [-stores redis,etcd] [-rounds 7] [-slice 300ms] [-json file] [-against file]
//	go run . -json figures.json -plot ../docs/bench.svg
//
// All subjects of a store take turns on one server on loopback, so that what the machine does
// meanwhile meets all of them. Figures are medians of the rounds; compare them
// within one run, as ratios. With -against an earlier run's file, the program compares
// the ratios with that run's, measures a store again if one is more than 20 % worse, and
// fails if it is so in both measurements.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

type config struct {
	rounds     int
	slice      time.Duration
	contenders int
	parallel   int
	goroutines int   // of one client on one name
	many       []int // numbers of contenders for the requests per grant
	held       int
}

func main() {
	names := make([]string, 0, len(stores))
	for _, s := range stores {
		names = append(names, s.name)
	}
	var (
		which   = flag.String("stores", strings.Join(names, ","), "which stores")
		rounds  = flag.Int("rounds", 7, "rounds; figures are their medians")
		slice   = flag.Duration("slice", 300*time.Millisecond, "how long each subject runs in each round")
		held    = flag.Int("held", 10_000, "locks held, and waiters, at once; 0: not measured")
		jsonOut = flag.String("json", "", "write the figures to this file, too")
		against = flag.String("against", "", "compare with the figures in this file, and fail if a ratio is more than 20 % worse in two measurements")
		svgOut  = flag.String("plot", "", "measure nothing: print the figures of the -json file, and draw them as this SVG")
	)
	flag.Parse()
	if *svgOut != "" {
		end(plot(*jsonOut, *svgOut))
		return
	}
	cfg := config{rounds: *rounds, slice: *slice, contenders: 16, parallel: 32, goroutines: 64, many: []int{2, 16, 256}, held: *held}
	chosen := strings.Split(*which, ",")
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			end(fmt.Errorf("-stores: there is no %q, only %s", name, strings.Join(names, ", ")))
		}
	}
	var before []result
	if *against != "" {
		var err error
		before, err = readJSON(*against)
		end(err)
	}
	all := runStores(chosen, cfg)
	if *jsonOut != "" {
		end(writeJSON(*jsonOut, all))
	}
	if *against != "" {
		end(judge(before, all, cfg))
	}
}

func runStores(names []string, cfg config) []result {
	var all []result
	for _, s := range stores {
		if slices.Contains(names, s.name) {
			all = append(all, runStore(s, cfg)...)
		}
	}
	return all
}

// judge compares with an earlier run. It returns an error if figures are worse in two
// measurements.
func judge(before, now []result, cfg config) error {
	changes := compare(before, now)
	printChanges(os.Stdout, changes)
	again := worseStores(changes)
	if len(again) == 0 {
		return nil
	}
	fmt.Printf("\nmeasured once more: %s\n", strings.Join(again, ", "))
	cfg.held = 0
	second := compare(before, runStores(again, cfg))
	printChanges(os.Stdout, second)
	if bad := confirmed(changes, second); len(bad) > 0 {
		return fmt.Errorf("%d ratios are more than 20 %% worse in two measurements, the first on %s: %s", len(bad), bad[0].store, bad[0].figure)
	}
	return nil
}

// end ends the program if there is an error.
func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func writeJSON(file string, all []result) error {
	b, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o600)
}

// print prints the figures of a store under its title.
func (s store) print(results []result) {
	fmt.Printf("\n### %s\n", s.title)
	printTables(os.Stdout, results)
}

// runStore starts the store, measures its subjects and prints the table.
func runStore(s store, cfg config) []result {
	tb := newBed()
	defer tb.End()
	subjects := s.subjects(tb)
	results := measure(tb, s.name, subjects, cfg)
	s.print(results)
	return results
}
