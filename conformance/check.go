package conformance

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Result is the result of one case.
type Result struct {
	Case    Case
	Err     error         // the rule that the driver breaks; nil: it passed, unless it was not run
	Missing []string      // not run: the harness lacks these
	Except  string        // not run: the reason why it does not apply
	Took    time.Duration // how long it ran
	Log     []string      // figures that it has measured
}

// Passed reports whether the case ran without an error.
func (r Result) Passed() bool { return r.Err == nil && len(r.Missing) == 0 && r.Except == "" }

// Check is Run for a program: it needs no testing.T. It runs some or all of [Cases]
// and calls report with each result as it comes, one at a time, beginning with the
// cases that cannot run. If a method of the driver does not return when its context has ended, no
// case is run, and each has failed with that.
//
// When ctx ends, Check starts no further case, ends those that run, and returns;
// it does not report what was not finished.
//
// It ignores Bubble and Complete of the Harness, which are for Run.
func Check(ctx context.Context, h Harness, cases []Case, report func(Result)) {
	results := resultsOf(cases, h)
	var mu sync.Mutex
	ended := func(r *result) {
		mu.Lock()
		defer mu.Unlock()
		if r.applies() && r.Err != nil && ctx.Err() != nil {
			return // Check has ended it: no fault of the driver
		}
		report(r.public())
	}
	err := stuck(ctx, h)
	for _, r := range results {
		if r.applies() {
			r.Err = err
		}
		if !r.applies() || err != nil {
			ended(r)
		}
	}
	if err != nil {
		return
	}
	oneByOne := func(results []*result) {
		for _, r := range results {
			if r.ended == nil && r.applies() && ctx.Err() == nil {
				r.run(ctx)
				ended(r)
			}
		}
	}
	n := untilBeside(results)
	oneByOne(results[:n])
	ahead(ctx, h, results[n:], ended)()
	oneByOne(results[n:])
}

// public returns a copy of the result for others.
func (r *result) public() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	public := r.Result
	public.Log = slices.Clone(r.Log)
	return public
}
