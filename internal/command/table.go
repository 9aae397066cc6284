package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// maxPadded is the widest cell that widens its column: names, owners and notes may have
// hundreds of columns, and one of them shall not push all other rows off the screen.
const maxPadded = 48

// writeTable writes what layOut makes.
func writeTable(w io.Writer, head []string, rows [][]string) {
	fmt.Fprintln(w, strings.Join(layOut(w, head, rows), "\n"))
}

// layOut makes lines of a head, which is bold, and rows, in columns. Cells may be painted; what
// a store or a user gave has been made printable. A long cell is whole, and moves the rest of
// its row.
func layOut(w io.Writer, head []string, rows [][]string) []string {
	table := append([][]string{head}, rows...)
	widths := make([]int, len(head))
	for _, cells := range table {
		for i, cell := range cells {
			if width := ansi.StringWidth(cell); width <= maxPadded {
				widths[i] = max(widths[i], width)
			}
		}
	}
	lines := make([]string, len(table))
	for n, cells := range table {
		var line strings.Builder
		for i, cell := range cells {
			line.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))+2))
		}
		lines[n] = strings.TrimRight(line.String(), " ")
	}
	lines[0] = paint(w, bold, lines[0])
	return lines
}
