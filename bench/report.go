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

// medians takes each figure's median over the rounds.
func medians(rs []result) result {
	m := rs[0]
	m.CycleP50 = median(rs, func(r result) time.Duration { return r.CycleP50 })
	m.CycleP99 = median(rs, func(r result) time.Duration { return r.CycleP99 })
	m.Cycles = median(rs, func(r result) float64 { return r.Cycles })
	m.Parallel = median(rs, func(r result) float64 { return r.Parallel })
	m.PerCycle = median(rs, func(r result) float64 { return r.PerCycle })
	m.Grants = median(rs, func(r result) float64 { return r.Grants })
	m.HandoffP50 = median(rs, func(r result) time.Duration { return r.HandoffP50 })
	m.HandoffP99 = median(rs, func(r result) time.Duration { return r.HandoffP99 })
	m.Jain = median(rs, func(r result) float64 { return r.Jain })
	for i := range m.PerGrant {
		m.PerGrant[i] = median(rs, func(r result) float64 { return r.PerGrant[i] })
	}
	return m
}

func median[T cmp.Ordered](rs []result, of func(result) T) T {
	vs := make([]T, len(rs))
	for i, r := range rs {
		vs[i] = of(r)
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// printTable prints the figures, and in brackets the ratio to the first row
// that has the figure: the store used raw.
func printTable(w io.Writer, rs []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tcycle p50\tp99\tcycles/s\treq\t32 names/s\t16 clients: grants/s\thand-off p50\tp99\tJain\treq/grant 2|16|256\theld: B, goroutines, req/TTL")
	for _, r := range rs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Subject,
			duration(r.CycleP50, first(rs, func(r result) time.Duration { return r.CycleP50 })), duration(r.CycleP99, 0),
			number(r.Cycles, first(rs, func(r result) float64 { return r.Cycles })), some("%.1f", r.PerCycle),
			number(r.Parallel, first(rs, func(r result) float64 { return r.Parallel })),
			number(r.Grants, first(rs, func(r result) float64 { return r.Grants })),
			duration(r.HandoffP50, first(rs, func(r result) time.Duration { return r.HandoffP50 })), duration(r.HandoffP99, 0),
			some("%.3f", r.Jain), perGrant(r.PerGrant), heldText(r))
	}
	_ = t.Flush() // as with every print
}

func first[T cmp.Ordered](rs []result, of func(result) T) T {
	var zero T
	for _, r := range rs {
		if v := of(r); v != zero {
			return v
		}
	}
	return zero
}

func some(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func number(v, raw float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f [%.2f]", v, v/raw)
}

func duration(v, raw time.Duration) string {
	switch {
	case v == 0:
		return "-"
	case raw == 0:
		return v.Round(time.Microsecond).String()
	default:
		return fmt.Sprintf("%v [%.2f]", v.Round(time.Microsecond), float64(v)/float64(raw))
	}
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
