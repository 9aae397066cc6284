//go:build linux

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/internal/figures"
)

// totals are the figures of a run.
type totals struct {
	Store      string
	Version    string
	Seed       uint64
	Ran        time.Duration
	Workers    int // at once
	Processes  int // in all
	Grants     map[string]int
	Late       int // grants whose lease was over when they arrived
	Refused    map[string]int
	Lost       map[string]int
	Calm       []time.Duration // from call to grant, without faults
	Faulty     []time.Duration // with faults
	Faults     map[string]int
	Excused    int
	Starved    time.Duration // the machine did not run the coordinator
	LeftOut    []string
	Violations []string
}

func newTotals(store string) *totals {
	return &totals{Store: store, Grants: map[string]int{}, Refused: map[string]int{}, Lost: map[string]int{}, Faults: map[string]int{}}
}

func (t *totals) grant(e event, faulty bool) {
	mode := "exclusive"
	switch {
	case strings.HasPrefix(e.Name, solo):
		mode = "uncontended tries"
	case e.Mode < 0:
		mode = "shared"
	case e.Mode > 0:
		mode = "permits"
	}
	t.Grants[mode]++
	if d := time.Duration(e.At - e.From); !faulty {
		t.Calm = append(t.Calm, d)
	} else {
		t.Faulty = append(t.Faulty, d)
	}
}

func (t *totals) refuse(e event, faulty bool) { t.Refused[e.Why+when(faulty)]++ }

func (t *totals) lose(why string, faulty bool) { t.Lost[kindOf(why)+when(faulty)]++ }

func when(faulty bool) string {
	if faulty {
		return ", with faults"
	}
	return ", without faults"
}

var particular = regexp.MustCompile(`"[^"]*"|\b[0-9a-f]*\d[\w.:-]*`)

// kindOf is a reason without what is particular to one case.
func kindOf(why string) string {
	why = particular.ReplaceAllString(strings.ReplaceAll(why, "\n", "; "), "…")
	if cut := []rune(why); len(cut) > 160 {
		why = string(cut[:160]) + "…"
	}
	return why
}

// report is the totals as Markdown.
func (t *totals) report() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "| %s | %s |\n|---|---|\n", t.Store, t.Version)
	line("time", "%v, seed %d", t.Ran.Round(time.Second), t.Seed)
	line("processes", "%d at once, %d in all", t.Workers, t.Processes)
	line("grants", "%d: %s", sum(t.Grants), list(t.Grants))
	line("acquisitions that failed", "%d: %s", sum(t.Refused), list(t.Refused))
	line("locks lost", "%d: %s", sum(t.Lost), list(t.Lost))
	line("grants that came after the end of their lease", "%d", t.Late)
	for _, w := range []struct {
		what  string
		waits []time.Duration
	}{{"from call to grant, without faults", t.Calm}, {"from call to grant, with faults", t.Faulty}} {
		at := func(p int) time.Duration { return figures.Round(figures.Percentile(w.waits, p)) }
		line(w.what, "p50 %v, p99 %v, longest %v, of %d", at(50), at(99), at(100), len(w.waits))
	}
	line("faults", "%d: %s", sum(t.Faults), list(t.Faults))
	line("two holders that a fault excuses", "%d", t.Excused)
	line("machine too busy for the coordinator", "%v", t.Starved.Round(time.Second))
	if len(t.LeftOut) > 0 {
		line("left out", "%s", strings.Join(t.LeftOut, "; "))
	}
	line("**violations**", "**%d**", len(t.Violations))
	for _, v := range t.Violations {
		fmt.Fprintf(&b, "\n```\n%s\n```\n", v)
	}
	return b.String()
}

func sum(m map[string]int) (n int) {
	for _, c := range m {
		n += c
	}
	return n
}

// list names what a map counts, the most frequent first.
func list(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%d %s", m[k], k)
	}
	return strings.ReplaceAll(strings.Join(keys, "; "), "|", "\\|")
}
