package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// A plot has two columns of bars: what one client does alone, as a share of the
// raw store's rate, and what 16 clients do on one name.
const (
	plotWidth = 920
	rowHeight = 21
	barMost   = 210.0 // pixels
)

// plot prints and draws the figures that -json has written.
func plot(figures, file string) error {
	all, err := readJSON(figures)
	if err != nil {
		return err
	}
	for _, s := range stores {
		s.print(slices.DeleteFunc(slices.Clone(all), func(r result) bool { return r.Store != s.name }))
	}
	f, err := os.Create(file) //nolint:gosec // the same
	if err != nil {
		return err
	}
	draw(f, all)
	return f.Close()
}

func draw(w io.Writer, all []result) {
	var rows []result
	raw := map[string]float64{}
	most := map[string]float64{}
	for _, r := range all {
		if raw[r.Store] == 0 {
			raw[r.Store] = r.Cycles // the first row is the store used raw
			continue
		}
		if r.Cycles != 0 && r.Grants != 0 {
			rows = append(rows, r)
			most[r.Store] = max(most[r.Store], r.Grants)
		}
	}
	stores := 0
	for i, r := range rows {
		if i == 0 || rows[i-1].Store != r.Store {
			stores++
		}
	}
	height := 70 + rowHeight*len(rows) + 10*stores
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="-apple-system,Segoe UI,Helvetica,Arial,sans-serif" font-size="12.5" role="img" aria-label="What a lock costs, beside the raw stores and other libraries">`, plotWidth, height)
	p(`<rect width="%d" height="%d" rx="8" fill="#fbfbfd"/>`, plotWidth, height)
	p(`<text x="300" y="26" font-weight="600">one client: share of the raw store's rate</text><text x="610" y="26" font-weight="600">16 clients on one name: grants/s, fairness</text>`)
	p(`<g fill="#6b7280" font-size="11"><text x="300" y="42">longer is quicker; the line is the raw store</text><text x="610" y="42">in brackets Jain's index: 1 means that all get the same share</text></g>`)
	y := 56
	for i, r := range rows {
		if i == 0 || rows[i-1].Store != r.Store {
			y += 10
			p(`<text x="16" y="%d" font-weight="600" fill="#111827">%s</text>`, y+14, r.Store)
		}
		fill, ink := "#cbd5e1", "#4b5563"
		if r.Subject == "locker" {
			fill, ink = "#2563eb", "#111827"
		}
		share := r.Cycles / raw[r.Store]
		p(`<text x="100" y="%d" fill="%s">%s</text>`, y+14, ink, short(r.Subject))
		bar(p, 300, y, min(share, 1.25)/1.25, fill, fmt.Sprintf("%.2f", share))
		bar(p, 610, y, r.Grants/most[r.Store], fill, fmt.Sprintf("%.0f (%.2f)", r.Grants, r.Jain))
		p(`<path d="M%.0f %dv%d" stroke="#9ca3af" stroke-dasharray="2 2"/>`, 300+barMost/1.25, y, rowHeight-4)
		y += rowHeight
	}
	p(`</svg>`)
}

func bar(p func(string, ...any), x, y int, share float64, fill, text string) {
	p(`<rect x="%d" y="%d" width="%.0f" height="%d" rx="2" fill="%s"/><text x="%.0f" y="%d" fill="#374151">%s</text>`,
		x, y+2, max(2, share*barMost), rowHeight-6, fill, float64(x)+share*barMost+6, y+14, text)
}

// short is a subject without what is said of it behind a comma.
func short(subject string) string {
	s, _, _ := strings.Cut(subject, ",")
	return s
}
