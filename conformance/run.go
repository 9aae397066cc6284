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
		if !slices.ContainsFunc(results, func(r *result) bool { return r.c.String() == name }) {
			t.Errorf("conformance: Except names %q, and there is no such case", name)
		}
	}
	all := !filtered(t)
	for _, r := range results {
		if testing.Short() && !h.Bubble && r.c.place == quietStore && r.except == "" {
			r.except = "-short leaves out what waits for the minute of D18"
		}
	}
	if !h.Bubble && all {
		defer ahead(context.Background(), h, results, func(*result) {})()
	}
	for _, r := range results {
		t.Run(r.c.String(), r.report)
	}
	if all {
		line := summary(results)
		t.Log(line)
		if !testing.Verbose() && !t.Failed() {
			fmt.Printf("%s: %s\n", t.Name(), line)
		}
	}
}

// resultsOf returns results for cases that have not run yet.
func resultsOf(cases []Case, h Harness) []*result {
	results := make([]*result, len(cases))
	own := newStores(h)
	for i, c := range cases {
		results[i] = &result{c: c, h: h, missing: c.Needs.missing(h), except: h.Except[c.String()]}
		if c.place.ofOwn() {
			results[i].stores = own
		}
	}
	return results
}

// summary says how many cases passed, and which fields of the harness the others
// need.
func summary(results []*result) string {
	passed, failed, except := 0, 0, 0
	rules := make(map[string][]string) // by the missing fields
	for _, r := range results {
		switch {
		case r.except != "", r.skipped != "" && r.err == nil:
			except++
		case len(r.missing) > 0:
			lack := strings.Join(r.missing, " and ")
			rules[lack] = append(rules[lack], r.c.Rules...)
		case r.err != nil:
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

// result is a case, and its result.
type result struct {
	c       Case
	h       Harness
	stores  *stores  // nil, or where the case finds a store of its own
	missing []string // the fields that the case needs and h does not have
	except  string   // why the case does not apply

	ended   chan struct{} // closed when the case has run, if ahead runs it
	err     error
	skipped string // why the case does not apply, as it has found out itself
	took    time.Duration
	mu      sync.Mutex
	lines   []string // of the case's log
}

func (r *result) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// applies reports whether the case can run.
func (r *result) applies() bool { return len(r.missing) == 0 && r.except == "" }

// run runs the case.
func (r *result) run(ctx context.Context) {
	r.err = errGoexit // if Open ends the goroutine, as t.FailNow does
	var own sync.WaitGroup
	own.Go(func() {
		r.err = r.stores.use(ctx, r.h, func(h Harness) error {
			begun := time.Now()
			defer func() { r.took = time.Since(begun) }()
			h.logf = r.logf
			h.skip = func(why string) { r.skipped = why }
			return r.c.Run(ctx, h)
		})
	})
	own.Wait()
}

// report is the sub-test.
func (r *result) report(t *testing.T) {
	if r.except != "" {
		t.Skip("does not apply: " + r.except)
	}
	if len(r.missing) > 0 {
		lack := fmt.Sprintf("not run: the harness has no %s (%s: %s)", strings.Join(r.missing, " and no "), r.c.cites(), r.c.Explain)
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
	t.Logf("%s: %s (%v)", r.c.cites(), r.c.Explain, r.took.Round(time.Millisecond))
	r.mu.Lock()
	for _, line := range r.lines {
		t.Log(line)
	}
	r.mu.Unlock()
	if r.err == nil && r.skipped != "" {
		t.Skip("does not apply: " + r.skipped)
	}
	if r.err != nil {
		t.Errorf("failed: %v", r.err)
		var h *historyError
		if errors.As(r.err, &h) {
			if file, err := h.draw(); err == nil {
				t.Logf("the history is drawn in %s", file)
			}
		}
	}
}
