package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// screen shows readings as a table that is drawn anew on the whole terminal.
type screen struct {
	*app
	store, prefix string
	by            order

	seen reading   // the last reading that succeeded
	down time.Time // since when none does; zero: the last one did
}

func (s *screen) show(l reading) {
	switch {
	case l.err == nil:
		s.seen, s.down = l, time.Time{}
		sortQueues(s.by, l.queues, l.at)
	case s.down.IsZero():
		s.down = l.at
	}
	width, height := sizeOf(s.Out)
	lines := s.lines(l)
	if room := max(2, height-1); len(lines) > room { // the cursor has the last line
		lines = append(lines[:room-1], fmt.Sprintf("… %d more", len(lines)-room+1))
	}
	var b strings.Builder
	b.WriteString("\x1b[H") // to the top; what was there is overwritten, so that nothing flickers
	for _, line := range lines {
		b.WriteString("\x1b[K" + ansi.Truncate(line, width, "…") + "\n") // erased before: a full line would lose its end
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(s.out, b.String())
}

// lines are the picture after a reading: what is watched, how much there is, an outage, the table.
func (s *screen) lines(l reading) []string {
	what := "locker watch " + s.store
	if s.prefix != "" {
		what += " " + printable(s.prefix) + "…"
	}
	holders, waiters := 0, 0
	for _, q := range s.seen.queues {
		h, w := tally(q)
		holders, waiters = holders+h, waiters+w
	}
	figures := fmt.Sprintf("%s  %s, %s, %s", s.seen.at.Format(time.TimeOnly), count(len(s.seen.queues), "lock", "locks"),
		count(holders, "holder", "holders"), count(waiters, "waiter", "waiters"))
	outage := ""
	if l.err != nil {
		outage = paint(s.Out, red, fmt.Sprintf("no answer for %s: %s", short(l.at.Sub(s.down)), printable(textOf(l.err))))
	}
	lines := []string{paint(s.Out, bold, what), figures, outage}
	if len(s.seen.queues) == 0 {
		return append(lines, noneWith(s.prefix))
	}
	return append(lines, layOut(s.Out, listHead, listRows(s.seen.queues, s.seen.at))...)
}
