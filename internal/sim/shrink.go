package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// shrink returns a smaller plan that shows a violation of the same kind: without
// processes, threads, steps, lives and faults that it does not need. It drops one after
// the other for as long as the time lasts.
func shrink(t *testing.T, p *plan, violation string, most time.Duration) *plan {
	until := time.Now().Add(most)
	same := func(q *plan) bool {
		for range 3 { // the scheduler has a part in it
			if out := run(t, q); slices.ContainsFunc(out.broken, func(v string) bool { return kindOf(v) == kindOf(violation) }) {
				return true
			}
		}
		return false
	}
	for smaller := true; smaller; {
		smaller = false
		for i := 0; time.Now().Before(until); i++ {
			q := p.clone()
			if !q.drop(i) {
				break
			}
			if same(q) {
				p, smaller = q, true
				i-- // what followed has its number now
			}
		}
	}
	return p
}

var (
	values = regexp.MustCompile(`[0-9][0-9.a-zµ]*|"[^"]*"`)
	verbs  = regexp.MustCompile(`\b(acquire|try|do|all|list|inspect|break|ping)\b`)
)

// kindOf is a violation without names, numbers and times.
func kindOf(violation string) string {
	text := verbs.ReplaceAllString(values.ReplaceAllString(violation, "N"), "call")
	return text[:min(len(text), 60)]
}

func (p *plan) clone() *plan {
	q := *p
	q.faults = slices.Clone(p.faults)
	q.processes = nil
	for _, process := range p.processes {
		c := *process
		c.threads = nil
		for _, steps := range process.threads {
			c.threads = append(c.threads, cloneSteps(steps))
		}
		q.processes = append(q.processes, &c)
	}
	return &q
}

func cloneSteps(steps []step) []step {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].inner = cloneSteps(steps[i].inner)
	}
	return steps
}

// drop drops the i-th of the things that a plan can do without; false: there is none.
func (p *plan) drop(i int) bool {
	take := func(n int) bool {
		if i < n {
			return true
		}
		i -= n
		return false
	}
	if take(len(p.processes)) {
		p.processes = slices.Delete(p.processes, i, i+1)
		return true
	}
	if take(len(p.faults)) {
		p.faults = slices.Delete(p.faults, i, i+1)
		return true
	}
	for _, process := range p.processes {
		if take(len(process.threads)) {
			process.threads = slices.Delete(process.threads, i, i+1)
			return true
		}
	}
	for _, process := range p.processes {
		if take(1) {
			process.observer, process.stays = "", false
			if process.lives > 1 {
				process.lives--
			}
			return true
		}
	}
	for _, process := range p.processes {
		for j := range process.threads {
			if dropStep(&process.threads[j], &i) {
				return true
			}
		}
	}
	return false
}

func dropStep(steps *[]step, i *int) bool {
	for j := range *steps {
		if *i == 0 {
			*steps = slices.Delete(*steps, j, j+1)
			return true
		}
		*i--
		if dropStep(&(*steps)[j].inner, i) {
			return true
		}
	}
	return false
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, world %s\n", p.seed, p.world)
	for _, f := range p.faults {
		fmt.Fprintf(&b, "  at %v: %v\n", f.at, f)
	}
	for _, process := range p.processes {
		fmt.Fprintf(&b, "  %s from %v, %d lives, end %v, dies %t, stays %t, observer %q\n", process.name, process.start, process.lives, process.end, process.dies, process.stays, process.observer)
		for i, steps := range process.threads {
			writeSteps(&b, fmt.Sprintf("    %s.%d: ", process.name, i), steps)
		}
	}
	return b.String()
}

func writeSteps(b *strings.Builder, indent string, steps []step) {
	for i := range steps {
		fmt.Fprintf(b, "%s%v\n", indent, &steps[i])
		writeSteps(b, indent+"  ", steps[i].inner)
	}
}
