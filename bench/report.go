package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// takeMedians fills in each figure's median over the rounds.
func (r *result) takeMedians() {
	rs := r.rounds
	r.CycleP50 = median(rs, func(r result) time.Duration { return r.CycleP50 })
	r.CycleP99 = median(rs, func(r result) time.Duration { return r.CycleP99 })
	r.Cycles = median(rs, cycles)
	r.Parallel = median(rs, parallelCycles)
	r.PerCycle = median(rs, func(r result) float64 { return r.PerCycle })
	r.Grants = median(rs, grants)
	r.HandoffP50 = median(rs, handoff)
	r.HandoffP99 = median(rs, func(r result) time.Duration { return r.HandoffP99 })
	r.Jain = median(rs, func(r result) float64 { return r.Jain })
	r.Shared = median(rs, shared)
	r.SharedReqs = median(rs, func(r result) float64 { return r.SharedReqs })
	r.PerGrant = make([]float64, len(rs[0].PerGrant))
	for i := range r.PerGrant {
		r.PerGrant[i] = median(rs, func(r result) float64 { return r.PerGrant[i] })
	}
}

// The figures that are compared with the first row's.
func cycleP50(r result) time.Duration { return r.CycleP50 }
func cycles(r result) float64         { return r.Cycles }
func parallelCycles(r result) float64 { return r.Parallel }
func grants(r result) float64         { return r.Grants }
func handoff(r result) time.Duration  { return r.HandoffP50 }
func shared(r result) float64         { return r.Shared }

func median[T cmp.Ordered](rs []result, of func(result) T) T {
	vs := make([]T, len(rs))
	for i, r := range rs {
		vs[i] = of(r)
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// A table is one question, with a row for each subject that has an answer.
type table struct {
	title, header string
	has           func(result) bool
	row           func(rs []result, r result) []string
}

var tables = []table{
	{
		"One client", "cycle p50 | p99 | cycles/s | requests | 32 names/s",
		func(r result) bool { return r.Cycles != 0 },
		func(rs []result, r result) []string {
			return []string{
				duration(r.CycleP50) + ratio(rs, r, cycleP50), duration(r.CycleP99), some("%.0f", r.Cycles) + ratio(rs, r, cycles),
				some("%.1f", r.PerCycle), some("%.0f", r.Parallel) + ratio(rs, r, parallelCycles),
			}
		},
	},
	{
		"16 clients on one name", "grants/s | hand-off p50 | p99 | Jain | requests a grant: 2, 16, 256 clients",
		func(r result) bool { return r.Grants != 0 },
		func(rs []result, r result) []string {
			return []string{
				some("%.0f", r.Grants) + ratio(rs, r, grants), duration(r.HandoffP50) + ratio(rs, r, handoff), duration(r.HandoffP99),
				some("%.3f", r.Jain), perGrant(r.PerGrant),
			}
		},
	},
	{
		"64 goroutines of one client on one name", "grants/s | requests a grant",
		func(r result) bool { return r.Shared != 0 },
		func(rs []result, r result) []string {
			return []string{some("%.0f", r.Shared) + ratio(rs, r, shared), some("%.1f", r.SharedReqs)}
		},
	},
	{
		"10,000 locks of one client", "held: bytes each | goroutines | requests in 10 s | waiting: heap bytes each | stack",
		func(r result) bool { return r.HeldHeap != 0 },
		func(_ []result, r result) []string {
			return []string{
				some("%.0f", r.HeldHeap), fmt.Sprint(r.HeldGo), some("%.0f", r.HeldReqs), some("%.0f", r.WaitHeap), some("%.0f", r.WaitStack),
			}
		},
	},
}

// printTables prints the figures in Markdown, and in brackets the median over the rounds
// of their ratios to the first row that has the figure: the store used raw.
func printTables(w io.Writer, rs []result) {
	for _, t := range tables {
		lines := [][]string{strings.Split(t.title+" | "+t.header, " | ")}
		for _, r := range rs {
			if t.has(r) {
				lines = append(lines, append([]string{r.Subject}, t.row(rs, r)...))
			}
		}
		if len(lines) > 1 {
			fmt.Fprintln(w)
			printAligned(w, lines)
		}
	}
}

func printAligned(w io.Writer, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, line := range lines {
		var under string
		for i, cell := range line {
			fmt.Fprintf(w, "| %-*s ", widths[i], cell)
			under += "|" + strings.Repeat("-", widths[i]+2)
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			fmt.Fprintln(w, under+"|")
		}
	}
}

// ratio compares round by round, so that what the machine did in one of them
// touches both sides.
func ratio[T time.Duration | float64](rs []result, r result, of func(result) T) string {
	i := slices.IndexFunc(rs, func(r result) bool { return of(r) != 0 })
	if i < 0 || of(r) == 0 {
		return ""
	}
	ratios := make([]float64, len(r.rounds))
	for j := range ratios {
		ratios[j] = float64(of(r.rounds[j])) / float64(of(rs[i].rounds[j]))
	}
	slices.Sort(ratios)
	return fmt.Sprintf(" [%.2f]", ratios[len(ratios)/2])
}

func some(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func duration(v time.Duration) string {
	if v == 0 {
		return "-"
	}
	return v.Round(time.Microsecond).String()
}

func perGrant(vs []float64) string {
	texts := make([]string, len(vs))
	for i, v := range vs {
		texts[i] = some("%.1f", v)
	}
	return cmp.Or(strings.Join(texts, ", "), "-")
}
