package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// queueOf makes a queue with a holder since some seconds, and waiters.
func queueOf(name, owner string, held, waiters int) locker.Queue {
	q := locker.Queue{Name: name, Tickets: []locker.Ticket{{
		Token: 1, Owner: owner, Held: true, Since: noon.Add(-time.Duration(held) * time.Second), Remaining: 20 * time.Second,
	}}}
	for i := range waiters {
		q.Tickets = append(q.Tickets, locker.Ticket{Token: uint64(i + 2), Owner: fmt.Sprint("waiter-", i), Since: noon.Add(-9 * time.Second)})
	}
	return q
}

// modelOf is a screen of some size that shows queues.
func modelOf(width, height int, queues ...locker.Queue) *watchModel {
	w := &watcher{interval: time.Second}
	m := newWatchModel(context.Background(), w, "redis://host", io.Discard, reading{at: noon, queues: queues})
	return (&m).after(tea.WindowSizeMsg{Width: width, Height: height})
}

// after is the model after messages; a text is keys.
func (m *watchModel) after(msgs ...any) *watchModel {
	next := tea.Model(*m)
	for _, msg := range msgs {
		if text, ok := msg.(string); ok {
			for _, r := range text {
				next, _ = next.Update(keyOf(r))
			}
			continue
		}
		next, _ = next.Update(msg)
	}
	model := next.(watchModel)
	return &model
}

func keyOf(r rune) tea.KeyMsg {
	switch r {
	case '\r':
		return tea.KeyMsg{Type: tea.KeyEnter}
	case '\x1b':
		return tea.KeyMsg{Type: tea.KeyEsc}
	case '\b':
		return tea.KeyMsg{Type: tea.KeyBackspace}
	case ' ':
		return tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}}
	}
	return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}}
}

// names are the first words of the rows that are shown.
func (m *watchModel) names() string {
	var names []string
	for _, line := range strings.Split(m.View(), "\n")[3:] {
		if fields := strings.Fields(strings.TrimPrefix(line, "> ")); len(fields) > 5 && !strings.Contains(line, "quit") {
			names = append(names, fields[0])
		}
	}
	return strings.Join(names, " ")
}

func TestViewSorts(t *testing.T) {
	t.Parallel()
	m := modelOf(100, 24, queueOf("a", "x", 5, 1), queueOf("b", "x", 50, 0), queueOf("c", "x", 1, 3))
	for _, want := range []string{"a b c", "c a b", "a c b", "b a c", "a b c"} {
		if got := m.names(); got != want {
			t.Errorf("sorted by %d: %s, want %s", m.sort, got, want)
		}
		m = m.after("s")
	}
}

func TestViewFilters(t *testing.T) {
	t.Parallel()
	m := modelOf(100, 24, queueOf("a", "web", 5, 1), queueOf("b", "worker", 50, 0), queueOf("web 2", "x", 1, 0))
	if got := m.after("/web").names(); got != "a web" {
		t.Errorf("filtered by web: %s", got)
	}
	if got := m.after("/web 2").names(); got != "web" {
		t.Errorf("filtered by web 2: %s", got)
	}
	if got := m.after("/waiter-0\r").names(); got != "a" {
		t.Errorf("filtered by a waiter: %s", got)
	}
	if got := m.after("/wor\bb"); got.filter != "wob" || !strings.Contains(got.View(), "3 filtered out") {
		t.Errorf("%q\n%s", got.filter, got.View())
	}
	if got := m.after(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("/web")}).names(); got != "a web" {
		t.Errorf("filtered by what was typed at once: %s", got)
	}
	if got := m.after("/web\x1b").names(); got != "a b web" {
		t.Errorf("after esc: %s", got)
	}
}

func TestViewScrolls(t *testing.T) {
	t.Parallel()
	var queues []locker.Queue
	for i := range 50 {
		queues = append(queues, queueOf(fmt.Sprintf("q%02d", i), "x", 1, 0))
	}
	m := modelOf(100, 9, queues...) // five rows
	for _, c := range []struct{ keys, want, selected string }{
		{"", "q00 q01 q02 q03 q04", "q00"},
		{"jjjj", "q00 q01 q02 q03 q04", "q04"},
		{"j", "q01 q02 q03 q04 q05", "q05"},
		{"kkkkk", "q00 q01 q02 q03 q04", "q00"},
		{"k", "q00 q01 q02 q03 q04", "q00"},
		{"G", "q45 q46 q47 q48 q49", "q49"},
		{"j", "q45 q46 q47 q48 q49", "q49"},
		{"g", "q00 q01 q02 q03 q04", "q00"},
	} {
		m = m.after(c.keys)
		if got := m.names(); got != c.want || m.selected != c.selected {
			t.Errorf("%q: %s, selected %s; want %s, %s", c.keys, got, m.selected, c.want, c.selected)
		}
	}
	m.w.prefix = "order:"
	if view := m.after(reading{at: noon}).View(); !strings.Contains(view, "nobody holds or waits for a lock whose name begins with order:") {
		t.Errorf("with a prefix\n%s", view)
	}
	m.w.prefix = ""
	// The cursor follows its lock when others come and go.
	m = m.after("jj", reading{at: noon, queues: queues[1:]})
	if m.selected != "q02" || m.cursor != 1 {
		t.Errorf("selected %s in row %d", m.selected, m.cursor)
	}
	if m = m.after(reading{at: noon}); m.selected != "" || !strings.Contains(m.View(), "nobody holds a lock") {
		t.Errorf("selected %q\n%s", m.selected, m.View())
	}
}

func TestViewDetail(t *testing.T) {
	t.Parallel()
	m := modelOf(100, 9, queueOf("a", "holder", 5, 40))
	d := m.after("\r")
	if v := d.View(); !strings.Contains(v, "exclusive") || !strings.Contains(v, "holder") || !strings.Contains(v, "waiter-3") || strings.Contains(v, "waiter-4") {
		t.Error(v)
	}
	if v := d.after("G").View(); !strings.Contains(v, "waiter-39") {
		t.Error(v)
	}
	if v := d.after(reading{at: noon}).View(); !strings.Contains(v, "free: nobody") {
		t.Error(v)
	}
	if v := d.after("\x1b").View(); !strings.Contains(v, "WAITERS") {
		t.Error(v)
	}
}

func TestViewOutageAndStop(t *testing.T) {
	t.Parallel()
	m := modelOf(120, 9, queueOf("a", "x", 5, 0))
	down := reading{at: time.Now(), err: fmt.Errorf("no\nanswer \x1b[2J")}
	v := m.after(down).View()
	if !strings.Contains(v, `no answer for <1s; what is shown is of 12:00:00: "no; answer \x1b[2J"`) || !strings.Contains(v, "> a") {
		t.Error(v)
	}
	if v := m.after(down, reading{at: noon, queues: m.seen.queues}).View(); strings.Contains(v, "no answer") {
		t.Error(v)
	}
	paused := m.after(" ", reading{at: noon})
	if v := paused.View(); !strings.Contains(v, "paused") || !strings.Contains(v, "> a") {
		t.Error(v)
	}
	if v := paused.after(" ", reading{at: noon}).View(); strings.Contains(v, "paused") || strings.Contains(v, "> a") {
		t.Error(v)
	}
}

// TestViewFits draws on screens of every size: no line is longer, and there are no
// more lines.
func TestViewFits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("日本語-name-", 30)
	for _, keys := range []string{"", "\r", "/x", "s "} {
		for width := range 130 {
			for _, height := range []int{0, 1, 2, 5, 24} {
				m := modelOf(width, height, queueOf(long, long, 5, 3), queueOf("b\x1b[2J", "\u009b", 5, 0)).after(keys)
				lines := strings.Split(m.View(), "\n")
				if len(lines) > max(height, around+2) {
					t.Errorf("%d lines on a screen of %d", len(lines), height)
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > width || strings.ContainsAny(line, "\x1b\u009b") {
						t.Fatalf("%q on a screen of %d columns", line, width)
					}
				}
			}
		}
	}
}

func TestWatchIsNoBurden(t *testing.T) {
	t.Parallel()
	w := &watcher{interval: time.Second}
	for took, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond:  990 * time.Millisecond,
		500 * time.Millisecond: 2 * time.Second,
		3 * time.Second:        12 * time.Second,
	} {
		if got := w.pause(reading{took: took}); got != want {
			t.Errorf("after a reading of %v: %v, want %v", took, got, want)
		}
	}
}

func TestViewContended(t *testing.T) {
	t.Parallel()
	m := modelOf(100, 24, queueOf("a", "x", 5, 1), queueOf("b", "x", 50, 0)).after("c")
	if got := m.names(); got != "a" || !strings.Contains(m.View(), "contended only") {
		t.Errorf("contended only: %s\n%s", got, m.View())
	}
	if got := m.after("c").names(); got != "a b" {
		t.Errorf("all again: %s", got)
	}
}

// On a narrow terminal the keys are a page of their own.
func TestViewNarrow(t *testing.T) {
	t.Parallel()
	m := modelOf(60, 12, queueOf("a", "x", 5, 1))
	for _, view := range []string{m.View(), m.after("?").View()} {
		lines := strings.Split(view, "\n")
		if last := lines[len(lines)-1]; len(lines) != 12 || !strings.Contains(last, "? keys  q quit") {
			t.Errorf("%d lines\n%s", len(lines), view)
		}
		for _, line := range lines {
			if n := ansi.StringWidth(line); n > 60 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	if help := m.after("?").View(); !strings.Contains(help, "break the lock") || strings.Contains(m.after("??").View(), "break the lock") {
		t.Errorf("help:\n%s", help)
	}
}

// A lock is broken if the key after b is y, and in no other case; only those who were shown lose it.
func TestViewBreaks(t *testing.T) {
	t.Parallel()
	c := locker.New(memory.New())
	defer c.Close()
	k, err := c.Acquire(t.Context(), "a", locker.WithOwner("web-1"))
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{c: c, interval: time.Second}
	m := newWatchModel(t.Context(), w, "memory", io.Discard, w.read(t.Context()))
	m = *m.after(tea.WindowSizeMsg{Width: 100, Height: 24})
	asked := m.after("b")
	if view := asked.View(); !strings.Contains(view, "break a? y/n: web-1") {
		t.Errorf("the question:\n%s", view)
	}
	if declined := asked.after("n"); !strings.Contains(declined.View(), "nothing was removed") || k.Err() != nil {
		t.Errorf("%v after no:\n%s", k, declined.View())
	}
	next, then := asked.Update(keyOf('y'))
	if then == nil || k.Err() != nil {
		t.Fatalf("%v before the command ran", k)
	}
	next, again := next.Update(then())
	<-k.Done()
	next, _ = next.Update(again())
	if view := next.View(); !strings.Contains(view, "a: 1 ticket removed") || !strings.Contains(view, "nobody holds a lock") {
		t.Errorf("%v after yes:\n%s", k, view)
	}
	if none := m.after(reading{at: noon}, "b"); none.toBreak != nil || !strings.Contains(none.View(), "nobody holds it") {
		t.Errorf("a free lock:\n%s", none.View())
	}
}

// A text that is pasted, or typed ahead, breaks nothing that its author has not been asked about.
func TestViewBreaksOnlyWhatWasAsked(t *testing.T) {
	t.Parallel()
	for name, msg := range map[string]tea.KeyMsg{
		"keys that arrive together": {Type: tea.KeyRunes, Runes: []rune("by")},
		"a paste":                   {Type: tea.KeyRunes, Runes: []rune("by"), Paste: true},
	} {
		next, then := modelOf(100, 24, queueOf("a", "web-1", 5, 0)).Update(msg)
		if then != nil {
			t.Errorf("%s break the lock:\n%s", name, next.View())
		}
	}
	asked := modelOf(100, 24, queueOf("a", "web-1", 5, 0)).after("b")
	if next, then := asked.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("y"), Paste: true}); then != nil {
		t.Errorf("a paste answers:\n%s", next.View())
	}
	typing := modelOf(100, 24, queueOf("a", "web-1", 5, 0)).after("/", tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("by"), Paste: true})
	if typing.filter != "by" {
		t.Errorf("the filter is %q after a paste", typing.filter)
	}
}
