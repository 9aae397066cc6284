package command

import (
	"io"
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// maxPadded is the widest cell that widens its column: names, owners and notes may have
// hundreds of columns, and one of them shall not push all other rows off the screen.
const maxPadded = 48

// writeTable writes rows in columns under a head. Cells may be painted; what a
// store or a user gave has been made printable. The last column is not padded. A long cell
// is whole, and moves the rest of its own row.
func writeTable(w io.Writer, head []string, rows [][]string) error {
	widths := make([]int, len(head))
	all := append([][]string{make([]string, len(head))}, rows...)
	for i, h := range head {
		all[0][i] = paint(w, bold, h)
	}
	for _, row := range all {
		for i, cell := range row {
			if width := ansi.StringWidth(cell); width <= maxPadded {
				widths[i] = max(widths[i], width)
			}
		}
	}
	var b strings.Builder
	for _, row := range all {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFitted is writeTable for a terminal of that width: each row has one line, and what is
// too long for it is cut.
func writeFitted(w io.Writer, width int, head []string, rows [][]string) error {
	widths := fit(head, rows, width)
	lines := []string{paint(w, bold, row(head, widths))}
	for _, cells := range rows {
		lines = append(lines, row(cells, widths))
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// fit are the widths of columns that fill no more than the width of the screen: the widest
// gives way first.
func fit(head []string, rows [][]string, width int) []int {
	widths := make([]int, len(head))
	for _, cells := range append([][]string{head}, rows...) {
		for i, cell := range cells {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	over := 2*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= 4 {
			break
		}
		widths[widest]--
	}
	return widths
}

// further is what ends a cell that names the first of several holders.
var further = regexp.MustCompile(` \+[0-9]+$`)

// cut shortens a cell to a width, but not the number of further holders at its end.
func cut(cell string, width int) string {
	more := further.FindString(cell)
	return ansi.Truncate(strings.TrimSuffix(cell, more), width-len(more), "…") + more
}

// row is one line of the table.
func row(cells []string, widths []int) string {
	parts := make([]string, len(cells))
	for i, cell := range cells {
		parts[i] = pad(cut(cell, widths[i]), widths[i])
	}
	return strings.TrimRight(strings.Join(parts, "  "), " ")
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}
