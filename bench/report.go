package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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

func median[T cmp.Ordered](rs []result, of func(result) T) T {
	vs := make([]T, len(rs))
	for i, r := range rs {
		vs[i] = of(r)
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// printTable prints the figures, and in brackets the median over the rounds of
// their ratios to the first row that has the figure: the store used raw.
func printTable(w io.Writer, rs []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tcycle p50\tp99\tcycles/s\treq\t32 names/s\t16 clients: grants/s\thand-off p50\tp99\tJain\treq/grant 2|16|256\theld: B, goroutines, req/TTL\twaiting: heap B, stack B")
	for _, r := range rs {
		fmt.Fprintln(t, strings.Join([]string{
			r.Subject,
			duration(r.CycleP50) + ratio(rs, r, cycleP50), duration(r.CycleP99), some("%.0f", r.Cycles) + ratio(rs, r, cycles), some("%.1f", r.PerCycle),
			some("%.0f", r.Parallel) + ratio(rs, r, parallelCycles),
			some("%.0f", r.Grants) + ratio(rs, r, grants),
			duration(r.HandoffP50) + ratio(rs, r, handoff), duration(r.HandoffP99),
			some("%.3f", r.Jain), perGrant(r.PerGrant), heldText(r), waitText(r),
		}, "\t"))
	}
	_ = t.Flush() // as with every print
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
	return cmp.Or(strings.Join(texts, "|"), "-")
}

func heldText(r result) string {
	if r.HeldHeap == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f, %d, %.0f", r.HeldHeap, r.HeldGo, r.HeldReqs)
}

func waitText(r result) string {
	if r.WaitHeap == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f, %.0f", r.WaitHeap, r.WaitStack)
}
