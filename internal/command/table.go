package command

import (
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// maxPadded is the widest cell that widens its column: names, owners and notes may have
// hundreds of columns, and one of them shall not push all other rows off the screen.
const maxPadded = 48

// writeTable writes what layOut makes, with a bold head.
func writeTable(w io.Writer, width int, head []string, rows [][]string) error {
	lines := layOut(width, head, rows)
	lines[0] = paint(w, bold, lines[0])
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// layOut makes lines of a head and rows, in columns. Cells may be painted; what a store or
// a user gave has been made printable. On a screen of that width each row has one line, and
// what is too long for it is cut. With 0 a long cell is whole, and moves the rest of its row.
func layOut(width int, head []string, rows [][]string) []string {
	table := append([][]string{head}, rows...)
	widths := widthsOf(width, table)
	lines := make([]string, len(table))
	for i, cells := range table {
		padded := make([]string, len(cells))
		for column, cell := range cells {
			if width > 0 {
				cell = cut(cell, widths[column])
			}
			padded[column] = pad(cell, widths[column])
		}
		lines[i] = strings.TrimRight(strings.Join(padded, "  "), " ")
	}
	return lines
}

// widthsOf are the widths of columns. On a screen they fill no more than its width: the
// widest gives way first.
func widthsOf(width int, table [][]string) []int {
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, cell := range cells {
			if w := ansi.StringWidth(cell); w <= maxPadded || width > 0 {
				widths[i] = max(widths[i], w)
			}
		}
	}
	over := 2*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	for ; width > 0 && over > 0; over-- {
		widest := slices.Index(widths, slices.Max(widths))
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

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}
