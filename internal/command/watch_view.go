package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/lockerproject/locker"
)

// around is how many lines of the screen are not rows of the table: the title, the
// banner, the head, and the keys.
const around = 4

// rows is how many rows of the table the screen has.
func (m *watchModel) rows() int { return max(1, m.height-around) }

const reverse style = "7"

func (m *watchModel) paint(s style, text string) string { return paint(m.out, s, text) }

// View draws the screen.
func (m watchModel) View() string {
	lines := []string{m.title(), m.banner()}
	if m.help {
		lines = append(lines, helpLines...)
	} else {
		lines = append(lines, m.layOut(m.table())...)
	}
	lines = lines[:min(len(lines), max(3, m.height-1))]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, m.keys())
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return strings.Join(lines, "\n")
}

func (m *watchModel) title() string {
	what := "locker watch " + m.store
	if m.w.prefix != "" {
		what += " " + printable(m.w.prefix) + "…"
	}
	holders, waiters := 0, 0
	for _, q := range m.seen.queues {
		h, w := tally(q)
		holders, waiters = holders+h, waiters+w
	}
	figures := fmt.Sprintf("%s  %s, %s, %s", m.seen.at.Format(time.TimeOnly), count(len(m.seen.queues), "lock", "locks"),
		count(holders, "holder", "holders"), count(waiters, "waiter", "waiters"))
	what = ansi.Truncate(what, max(0, m.width-ansi.StringWidth(figures)-2), "…")
	gap := max(2, m.width-ansi.StringWidth(what)-ansi.StringWidth(figures))
	return m.paint(bold, what) + strings.Repeat(" ", gap) + figures
}

// banner says what the reader has to know: an outage before all else.
func (m *watchModel) banner() string {
	var parts []string
	if m.err != nil {
		parts = append(parts, m.paint(red, fmt.Sprintf("no answer for %s; what is shown is of %s: %s",
			short(time.Since(m.down)), m.seen.at.Format(time.TimeOnly), printable(textOf(m.err)))))
	}
	if m.paused {
		parts = append(parts, m.paint(yellow, "paused"))
	}
	switch {
	case m.toBreak != nil:
		parts = append(parts, m.paint(red, m.question()))
	case m.outcome != "":
		parts = append(parts, m.paint(yellow, printable(m.outcome)))
	}
	if m.contended {
		parts = append(parts, "contended only")
	}
	if m.typing || m.filter != "" {
		text := "filter: " + printable(m.filter)
		if m.typing {
			text += "_"
		}
		parts = append(parts, text)
	}
	if m.detail != "" {
		parts = append(parts, m.paint(bold, printable(m.detail)))
	}
	return strings.Join(parts, "  ")
}

// question is asked before a lock is broken.
func (m *watchModel) question() string {
	owners := printable(m.toBreak[0].Owner)
	if n := len(m.toBreak) - 1; n > 0 {
		owners += fmt.Sprintf(" +%d", n)
	}
	return fmt.Sprintf("break %s? y/n: %s goes on until it learns of it", printable(m.selected), owners)
}

func (m *watchModel) keys() string {
	keys := "↑↓ move  enter tickets  / filter  c contended  s sort  b break  space pause  ? help  q quit"
	switch {
	case m.toBreak != nil:
		keys = "y break it  any other key: no"
	case m.detail != "":
		keys = "↑↓ scroll  b break  esc back  space pause  q quit"
	case ansi.StringWidth(keys) > m.width:
		keys = "? keys  q quit"
	}
	return m.paint(dim, keys)
}

// helpLines say what the keys do.
var helpLines = []string{
	"↑ ↓ j k    move            enter  all tickets of the lock",
	"pgup pgdn  a page          esc    back",
	"g G        first, last     /      filter by name, owner, note",
	"c          contended only  s      sort by another column",
	"b          break the lock  space  pause",
	"?          close this      q      quit",
}

// table is the head and the rows that are shown.
func (m *watchModel) table() (head []string, rows [][]string) {
	if m.detail != "" {
		return ticketHead, m.ticketRows(m.ticketsOf(m.detail))
	}
	queues := m.shown()
	head, rows = tableOf(usualColumns, queues[min(m.top, len(queues)):min(m.top+m.rows(), len(queues))], m.seen.at)
	head[orders[m.sort].column] += "*"
	return head, rows
}

func (m *watchModel) ticketRows(ts []locker.Ticket) (rows [][]string) {
	for _, t := range ts[min(m.top, len(ts)):min(m.top+m.rows(), len(ts))] {
		rows = append(rows, ticketCells(m.out, t, m.seen.at))
	}
	return rows
}

// layOut makes lines of the table, and marks the row under the cursor.
func (m *watchModel) layOut(head []string, rows [][]string) []string {
	const mark = "> "
	lines := layOut(max(1, m.width-len(mark)), head, rows)
	for i, line := range lines {
		switch {
		case i == 0:
			lines[i] = m.paint(bold, "  "+line)
		case m.detail == "" && m.top+i-1 == m.cursor:
			lines[i] = m.paint(reverse, pad(mark+line, m.width))
		default:
			lines[i] = "  " + line
		}
	}
	if len(rows) == 0 {
		lines = append(lines, "  "+m.nothing())
	}
	return lines
}

// nothing is what an empty table says.
func (m *watchModel) nothing() string {
	switch {
	case m.detail != "":
		return "free: nobody holds it or waits for it"
	case m.filter != "" || m.contended:
		return strconv.Itoa(len(m.seen.queues)) + " filtered out"
	}
	return noneWith(m.w.prefix)
}
