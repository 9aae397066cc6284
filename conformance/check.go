package conformance

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Result is what one case has shown.
type Result struct {
	Case    Case
	Err     error         // what it disproves; nil: it is proved, unless it was not run
	Missing []string      // not run: the harness lacks these
	Except  string        // not run: the reason why it does not apply
	Took    time.Duration // how long it ran
	Log     []string      // figures that it has measured
}

// Proved tells whether the case ran and disproved nothing.
func (r Result) Proved() bool { return r.Err == nil && len(r.Missing) == 0 && r.Except == "" }

// Check is Run for a program: it needs no testing.T. It runs some of [Cases],
// or all, and calls tell with each result as it comes, one at a time; with the
// cases that cannot run first.
//
// When ctx ends, no further case begins, those that run are ended, and Check
// returns; what was not finished is not told.
//
// Bubble and Complete of the Harness are Run's and mean nothing here.
func Check(ctx context.Context, h Harness, cases []Case, tell func(Result)) {
	results := resultsOf(cases, h)
	var mu sync.Mutex
	ended := func(r *result) {
		mu.Lock()
		defer mu.Unlock()
		if r.applies() && r.err != nil && ctx.Err() != nil {
			return // it was ended: that says nothing of the driver
		}
		tell(r.public())
	}
	for _, r := range results {
		if !r.applies() {
			ended(r)
		}
	}
	ahead(ctx, results, ended)()
	for _, r := range results {
		if r.c.alone && r.applies() && ctx.Err() == nil {
			r.run(ctx)
			ended(r)
		}
	}
}

// public is the result as others see it.
func (r *result) public() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Result{
		Case: r.c, Err: r.err, Missing: r.missing, Except: r.except,
		Took: r.took, Log: slices.Clone(r.lines),
	}
}
