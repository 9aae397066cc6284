//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/internal/figures"
)

// totals are the figures of all runs with one folder.
type totals struct {
	Store      string
	Version    string
	Runs       int
	Ran        time.Duration
	Workers    int // at once
	Processes  int // in all
	Grants     map[string]int
	Late       int // grants whose lease was over when they arrived
	Refused    map[string]int
	Lost       map[string]int
	Calm       waits // of grants, without faults
	Faulty     waits
	Faults     map[string]int
	Excused    int
	Starved    time.Duration // the machine did not run the coordinator
	LeftOut    []string
	Violations []string

	violated int // by this run
}

// waits counts times from a call to its grant: Counts[i] is of those up to
// waitOf(i).
type waits struct {
	Counts [160]int
	Max    time.Duration
}

// waitOf is 1 µs and 20 % more for each step.
func waitOf(i int) time.Duration { return time.Duration(1000 * math.Pow(1.2, float64(i))) }

func (w *waits) add(d time.Duration) {
	i := 0
	for i < len(w.Counts)-1 && d > waitOf(i) {
		i++
	}
	w.Counts[i]++
	w.Max = max(w.Max, d)
}

func (w *waits) sum() (n int) {
	for _, c := range w.Counts {
		n += c
	}
	return n
}

// percentile is the time within which a share of all waits ended, to 20 %.
func (w *waits) percentile(share float64) time.Duration {
	rest := int(math.Ceil(share * float64(w.sum())))
	for i, c := range w.Counts {
		if rest -= c; rest <= 0 {
			return min(waitOf(i), w.Max)
		}
	}
	return w.Max
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
		t.Calm.add(d)
	} else {
		t.Faulty.add(d)
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

// load reads the totals of earlier runs.
func load(dir, store string) (*totals, error) {
	t := &totals{Store: store}
	b, err := os.ReadFile(filepath.Join(dir, "totals.json"))
	if err == nil {
		err = json.Unmarshal(b, t)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil && t.Store != store {
		err = fmt.Errorf("%s has the totals of %s", dir, t.Store)
	}
	for _, m := range []*map[string]int{&t.Grants, &t.Refused, &t.Lost, &t.Faults} {
		if *m == nil {
			*m = map[string]int{}
		}
	}
	return t, err
}

// save writes the totals and the report.
func (t *totals) save(dir string) error {
	b, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	temporary := filepath.Join(dir, "totals.json.new")
	if err := os.WriteFile(temporary, b, 0o644); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, "totals.json")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.md"), []byte(t.report()), 0o644)
}

// report is the totals as Markdown.
func (t *totals) report() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "| %s | %s |\n|---|---|\n", t.Store, t.Version)
	line("time", "%v in %d runs", t.Ran.Round(time.Second), t.Runs)
	line("processes", "%d at once, %d in all", t.Workers, t.Processes)
	line("grants", "%d: %s", sum(t.Grants), list(t.Grants))
	line("acquisitions that failed", "%d: %s", sum(t.Refused), list(t.Refused))
	line("locks lost", "%d: %s", sum(t.Lost), list(t.Lost))
	line("grants that came after the end of their lease", "%d", t.Late)
	for _, w := range []struct {
		what  string
		waits *waits
	}{{"from call to grant, without faults", &t.Calm}, {"from call to grant, with faults", &t.Faulty}} {
		line(w.what, "p50 %v, p99 %v, longest %v, of %d", figures.Round(w.waits.percentile(0.5)), figures.Round(w.waits.percentile(0.99)), figures.Round(w.waits.Max), w.waits.sum())
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
