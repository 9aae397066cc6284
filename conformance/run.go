package conformance

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Run tests a driver. Each case is a sub-test topic/name. A case that needs a field
// which the harness does not have is skipped. The log ends with a summary of what
// passed and what the rest needs. Without -v the summary is printed on standard
// output, which "go test" shows if it is run without a package list.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("conformance: the harness has no Open")
	}
	results := resultsOf(Cases(), h)
	for name := range h.Except {
		if !slices.ContainsFunc(results, func(r *result) bool { return r.Case.String() == name }) {
			t.Errorf("conformance: Except names %q, and there is no such case", name)
		}
	}
	all := !filtered(t)
	if all {
		if err := stuckIn(t, h); err != nil {
			t.Fatalf("conformance: %v", err)
		}
	}
	for _, r := range results {
		if testing.Short() && !h.Bubble && r.Case.Needs&NeedKeys != 0 && r.Except == "" {
			r.Except = "-short leaves out what waits for the minute of D18"
		}
	}
	n := untilBeside(results)
	for _, r := range results[:n] {
		t.Run(r.Case.String(), r.report)
	}
	if all && h.Parallel {
		t.Parallel()
	}
	if all && !h.Bubble {
		defer ahead(context.Background(), h, results, func(*result) {})()
	}
	for _, r := range results[n:] {
		t.Run(r.Case.String(), r.report)
	}
	if all {
		line := summary(results)
		t.Log(line)
		if !testing.Verbose() && !t.Failed() {
			fmt.Printf("%s: %s\n", t.Name(), line)
		}
	}
}

// stuckIn is stuck, in a bubble if cases run in bubbles.
func stuckIn(t *testing.T, h Harness) (err error) {
	t.Helper()
	if !h.Bubble {
		return stuck(context.Background(), h)
	}
	synctest.Test(t, func(*testing.T) { err = stuck(context.Background(), h) })
	return err
}

// resultsOf returns results for cases that have not run yet.
func resultsOf(cases []Case, h Harness) []*result {
	results := make([]*result, len(cases))
	own := newStores(h)
	for i, c := range cases {
		results[i] = &result{h: h, Result: Result{Case: c, Missing: c.Needs.missing(h), Except: h.Except[c.String()]}}
		if c.place == ownStore {
			results[i].stores = own
		}
	}
	return results
}

// untilBeside returns how many results are of cases that run alone. They come first.
func untilBeside(results []*result) int {
	n := slices.IndexFunc(results, func(r *result) bool { return r.Case.place != alone })
	if n < 0 {
		return len(results)
	}
	return n
}

// summary says how many cases passed, and which fields of the harness the others
// need.
func summary(results []*result) string {
	passed, failed, except := 0, 0, 0
	rules := make(map[string][]string) // by the missing fields
	for _, r := range results {
		switch {
		case r.Except != "":
			except++
		case len(r.Missing) > 0:
			lack := strings.Join(r.Missing, " and ")
			rules[lack] = append(rules[lack], r.Case.Rules...)
		case r.Err != nil:
			failed++
		default:
			passed++
		}
	}
	line := fmt.Sprintf("%d of %d cases passed", passed, len(results))
	if except > 0 {
		line += fmt.Sprintf(", %d not applicable", except)
	}
	if failed > 0 {
		line += fmt.Sprintf(", %d failed", failed)
	}
	for i, lack := range slices.Sorted(maps.Keys(rules)) {
		if i == 0 {
			line += "; not fully tested"
		}
		line += fmt.Sprintf("; %s: give %s", strings.Join(ofDriver(rules[lack]), ", "), lack)
	}
	return strings.Replace(line, "not fully tested; ", "not fully tested: ", 1)
}

// ofDriver returns the rules of package driver among some, each once, in order.
func ofDriver(rules []string) []string {
	var own []string
	for _, r := range rules {
		if strings.HasPrefix(r, "D") {
			own = append(own, r)
		}
	}
	slices.SortFunc(own, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	return slices.Compact(own)
}

// filtered reports whether the flags select some of the sub-tests: then only those
// may run.
func filtered(t *testing.T) bool {
	t.Helper()
	depth := strings.Count(t.Name(), "/") + 1
	for _, name := range []string{"test.run", "test.skip"} {
		f := flag.Lookup(name)
		if f != nil && strings.Count(f.Value.String(), "/") >= depth {
			return true
		}
	}
	return false
}

// result is a Result, and what the suite needs to get it.
type result struct {
	Result
	h      Harness
	stores *stores       // nil, or where the case finds a store of its own
	ended  chan struct{} // closed when the case has run, if ahead runs it
	mu     sync.Mutex    // guards Log
}

func (r *result) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Log = append(r.Log, fmt.Sprintf(format, args...))
}

// applies reports whether the case can run.
func (r *result) applies() bool { return len(r.Missing) == 0 && r.Except == "" }

// run runs the case.
func (r *result) run(ctx context.Context) {
	r.Err = errGoexit // if Open ends the goroutine, as t.FailNow does
	var skipped string
	var own sync.WaitGroup
	own.Go(func() {
		r.Err = r.stores.use(ctx, r.h, func(h Harness) error {
			begun := time.Now()
			defer func() { r.Took = time.Since(begun) }()
			h.logf = r.logf
			h.skip = func(why string) { skipped = why }
			return r.Case.Run(ctx, h)
		})
	})
	own.Wait()
	if r.Err == nil {
		r.Except = skipped
	}
}

// report is the sub-test.
func (r *result) report(t *testing.T) {
	if r.ended == nil && r.Except != "" { // else it has begun to run
		t.Skip("does not apply: " + r.Except)
	}
	if len(r.Missing) > 0 {
		lack := fmt.Sprintf("not run: the harness has no %s (%s: %s)", strings.Join(r.Missing, " and no "), r.Case.cites(), r.Case.Explain)
		if r.h.Complete {
			t.Fatalf("%s, and asks for a complete proof", lack)
		}
		t.Skip(lack)
	}
	switch {
	case r.ended != nil:
		<-r.ended
	case r.h.Bubble:
		synctest.Test(t, func(*testing.T) { r.run(context.Background()) })
	default:
		r.run(context.Background())
	}
	t.Logf("%s: %s (%v)", r.Case.cites(), r.Case.Explain, r.Took.Round(time.Millisecond))
	r.mu.Lock()
	for _, line := range r.Log {
		t.Log(line)
	}
	r.mu.Unlock()
	if r.Except != "" {
		t.Skip("does not apply: " + r.Except)
	}
	if r.Err != nil {
		t.Errorf("failed: %v", r.Err)
		var h *historyError
		if errors.As(r.Err, &h) {
			if file, err := h.draw(); err == nil {
				t.Logf("the history is drawn in %s", file)
			}
		}
	}
}
