package conformance

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// atOnce is how many cases run at a time. Most of their time they wait for
// leases to end, which is why the limit is not the number of processors.
const atOnce = 6

// Run proves a driver. Each case is a sub-test topic/name; a case that needs
// what the harness does not have is named in the log.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("conformance: the harness has no Open")
	}
	cases := runnable(t, h)
	var results []*result
	for _, c := range cases {
		results = append(results, &result{c: c, h: h})
	}
	if !h.Bubble && !filtered(t) {
		defer ahead(results)()
	}
	for _, r := range results {
		t.Run(r.c.String(), r.report)
	}
}

// runnable leaves out, and logs, the cases whose needs the harness lacks.
func runnable(t *testing.T, h Harness) []Case {
	t.Helper()
	var cases []Case
	for _, c := range Cases() {
		if what, missing := c.Needs.missing(h); missing {
			t.Logf("%s: not run: the harness has no %s", c, what)
			continue
		}
		cases = append(cases, c)
	}
	return cases
}

// filtered tells whether the flags choose among the sub-tests: then only those
// that are asked for may run.
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

// ahead starts the cases that need not be alone, a few at a time. Sub-tests
// with t.Parallel would be bounded by the number of processors. The function
// it returns waits for all of them.
func ahead(results []*result) (wait func()) {
	var group sync.WaitGroup
	queue := make(chan *result)
	for range atOnce {
		group.Go(func() {
			for r := range queue {
				r.run()
			}
		})
	}
	group.Go(func() {
		defer close(queue)
		for _, r := range results {
			if !r.c.alone {
				queue <- r
			}
		}
	})
	return group.Wait
}

// apart runs f on a goroutine of its own and waits for it: f may end it.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// result is a case that runs once, whoever asks first.
type result struct {
	c Case
	h Harness

	once sync.Once
	err  error
	took time.Duration
}

func (r *result) run() {
	r.once.Do(func() {
		begun := time.Now()
		defer func() { r.took = time.Since(begun) }()
		r.err = errGoexit // should Open end the goroutine, as t.FailNow does
		apart(func() { r.err = r.c.Run(context.Background(), r.h) })
	})
}

// report is the sub-test.
func (r *result) report(t *testing.T) {
	if r.h.Bubble {
		synctest.Test(t, func(*testing.T) { r.run() })
	} else {
		r.run()
	}
	t.Logf("%s: %s (%v)", r.c.cites(), r.c.Explain, r.took.Round(time.Millisecond))
	if r.err != nil {
		t.Errorf("disproved: %v", r.err)
	}
}
