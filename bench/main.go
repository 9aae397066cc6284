// Bench measures, in one run and interleaved, what a lock costs: the store
// used raw, this library, and the libraries people come from.
//
//	go run . [-stores redis,etcd] [-rounds 7] [-slice 300ms] [-json file]
//	go run . -json figures.json -plot ../docs/bench.svg
//
// All subjects of a store take turns on one server on loopback, so that what the machine does
// meanwhile meets all of them. Figures are medians of the rounds; compare them
// within one run, as ratios.
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
		svgOut  = flag.String("plot", "", "measure nothing: draw the figures of the -json file as this SVG")
	)
	flag.Parse()
	if *svgOut != "" {
		end(plot(*jsonOut, *svgOut))
		return
	}
	cfg := config{rounds: *rounds, slice: *slice, contenders: 16, parallel: 32, many: []int{2, 16, 256}, held: *held}
	var all []result
	for _, s := range stores {
		if slices.Contains(strings.Split(*which, ","), s.name) {
			all = append(all, runStore(s, cfg)...)
		}
	}
	if *jsonOut != "" {
		end(writeJSON(*jsonOut, all))
	}
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

// runStore starts the store, measures its subjects and prints the table.
func runStore(s store, cfg config) []result {
	tb := &bed{}
	defer tb.end()
	fmt.Printf("\n%s\n", s.title)
	subjects := s.subjects(tb)
	results := measure(tb, s.name, subjects, cfg)
	printTable(os.Stdout, results)
	return results
}
