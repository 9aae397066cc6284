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

// writeTable writes a head, which is bold, and rows, in columns. Cells may be painted; what
// a store or a user gave has been made printable. A long cell is whole, and moves the rest of
// its row.
func writeTable(w io.Writer, head []string, rows [][]string) {
	table := append([][]string{head}, rows...)
	widths := make([]int, len(head))
	for _, cells := range table {
		for i, cell := range cells {
			if width := ansi.StringWidth(cell); width <= maxPadded {
				widths[i] = max(widths[i], width)
			}
		}
	}
	for n, cells := range table {
		var line strings.Builder
		for i, cell := range cells {
			line.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))+2))
		}
		text := strings.TrimRight(line.String(), " ")
		if n == 0 {
			text = paint(w, bold, text)
		}
		fmt.Fprintln(w, text)
	}
}
