package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/lockerproject/locker"
)

// watchModel is the screen of locker watch, as Bubble Tea wants it: Update changes
// it, View draws it.
type watchModel struct {
	ctx   context.Context //nolint:containedctx // of the verb: Bubble Tea's commands have none
	w     *watcher
	store string
	out   io.Writer // which takes colours, or does not

	seen reading // the last reading that succeeded
	err  error   // of the last reading
	down time.Time

	width, height int
	cursor        int    // the row that is selected
	selected      string // its name, which the cursor follows
	top           int    // the first row that is shown
	sort          int    // index in orders
	filter        string
	typing        bool   // the filter is being typed
	contended     bool   // only locks that somebody waits for are shown
	detail        string // the lock whose tickets are shown; empty: the table of all
	paused        bool   // the screen is not updated
	help          bool   // what the keys do is shown

	toBreak []locker.Ticket // tickets of selected, which the next key y removes
	outcome string          // of the last removal
}

func newWatchModel(ctx context.Context, w *watcher, store string, out io.Writer, first reading) watchModel {
	return watchModel{ctx: ctx, w: w, store: store, out: out, seen: first, width: 80, height: 24}
}

// readNow is the message that it is time for a reading.
type readNow struct{}

func (m watchModel) Init() tea.Cmd { return m.readAfter(m.w.pause(m.seen)) }

func (m watchModel) readAfter(d time.Duration) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return readNow{} })
}

func (m watchModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var then tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case readNow:
		return m, func() tea.Msg { return m.w.read(m.ctx) }
	case reading:
		m.take(msg)
		then = m.readAfter(m.w.pause(msg))
	case broken:
		m.outcome = msg.text
		return m, func() tea.Msg { return m.w.read(m.ctx) }
	case tea.KeyMsg:
		then = m.allKeys(msg)
	}
	m.scroll()
	return m, then
}

// take notes what was seen.
func (m *watchModel) take(l reading) {
	if m.paused {
		return
	}
	if m.err = l.err; m.err == nil {
		m.seen, m.down = l, time.Time{}
	} else if m.down.IsZero() {
		m.down = l.at
	}
}

// allKeys handles a message of keys. Keys that arrive together, as from a fast typist
// over a slow connection, are one message. None of them answers a question that another one
// has asked: nobody has read it. A text that is pasted is for the filter alone.
func (m *watchModel) allKeys(msg tea.KeyMsg) (then tea.Cmd) {
	if msg.Paste && !m.typing {
		return nil
	}
	if msg.Type != tea.KeyRunes || len(msg.Runes) < 2 {
		return m.key(msg)
	}
	asked := m.toBreak != nil
	for _, r := range msg.Runes {
		if !asked && m.toBreak != nil {
			break
		}
		if cmd := m.key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}}); cmd != nil {
			then = cmd
		}
	}
	return then
}

// key handles a key.
func (m *watchModel) key(msg tea.KeyMsg) tea.Cmd {
	switch {
	case msg.Type == tea.KeyCtrlC:
		return tea.Interrupt
	case msg.Type == tea.KeyCtrlZ:
		return tea.Suspend
	case m.typing:
		m.typeFilter(msg)
		return nil
	case m.toBreak != nil:
		return m.answer(msg.String() == "y")
	}
	m.outcome = ""
	switch msg.String() {
	case "?":
		m.help = !m.help
	case "b":
		m.ask()
	case "c":
		m.contended = !m.contended
	case "q":
		return tea.Quit
	case "esc":
		if m.detail == "" && m.filter == "" {
			return tea.Quit
		}
		if m.detail != "" {
			m.detail, m.top = "", 0
		} else {
			m.filter = ""
		}
	case "enter":
		if m.detail == "" {
			m.detail, m.top = m.selected, 0
		}
	case "/":
		m.typing, m.detail = true, ""
	case "s":
		m.sort = (m.sort + 1) % len(orders)
	case " ":
		m.paused = !m.paused
	default:
		m.move(msg.String())
	}
	return nil
}

// ask asks whether the holders of the selected lock are to lose it: those that are shown.
func (m *watchModel) ask() {
	name := cmp.Or(m.detail, m.selected)
	m.toBreak = slices.DeleteFunc(slices.Clone(m.ticketsOf(name)), func(t locker.Ticket) bool { return !t.Held })
	m.selected = name
	if len(m.toBreak) == 0 {
		m.toBreak, m.outcome = nil, "nobody holds it"
	}
}

// broken is the message that a lock was broken, or why not.
type broken struct{ text string }

func (m *watchModel) answer(yes bool) tea.Cmd {
	name, toBreak := m.selected, m.toBreak
	if m.toBreak = nil; !yes {
		m.outcome = errDeclined.Error()
		return nil
	}
	ctx, c := m.ctx, m.w.c
	return func() tea.Msg {
		b := breaking{name: name, tickets: toBreak}
		if b.run(ctx, c); b.err != nil {
			return broken{textOf(b.err)}
		}
		return broken{fmt.Sprintf("%s: %s removed", name, count(len(toBreak), "ticket", "tickets"))}
	}
}

// typeFilter handles a key while the filter is being typed.
func (m *watchModel) typeFilter(msg tea.KeyMsg) {
	switch msg.Type {
	case tea.KeyEnter:
		m.typing = false
	case tea.KeyEsc:
		m.typing, m.filter = false, ""
	case tea.KeyBackspace:
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	case tea.KeyRunes, tea.KeySpace:
		m.filter += string(msg.Runes)
	}
}

// move moves the cursor or, where there is none, the picture.
func (m *watchModel) move(key string) {
	page := max(1, m.rows()-1)
	step := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdown": page,
		"home": -1 << 30, "g": -1 << 30, "end": 1 << 30, "G": 1 << 30,
	}[key]
	if m.detail != "" {
		m.top += step
		return
	}
	if queues := m.shown(); step != 0 && len(queues) > 0 {
		m.cursor = min(max(0, m.cursor+step), len(queues)-1)
		m.selected = queues[m.cursor].Name
	}
}

// scroll lets the cursor follow its lock, and the picture the cursor.
func (m *watchModel) scroll() {
	if m.detail != "" {
		m.top = min(max(0, m.top), max(0, len(m.ticketsOf(m.detail))-m.rows()))
		return
	}
	queues := m.shown()
	at := slices.IndexFunc(queues, func(q locker.Queue) bool { return q.Name == m.selected })
	if at < 0 { // it has become free, or is filtered out
		at = min(m.cursor, len(queues)-1)
	}
	m.cursor = max(0, at)
	if m.selected = ""; at >= 0 {
		m.selected = queues[at].Name
	}
	m.top = min(m.top, m.cursor, max(0, len(queues)-m.rows()))
	m.top = max(m.top, m.cursor-m.rows()+1)
}

// shown are the queues that pass the filter, as they are sorted.
func (m *watchModel) shown() []locker.Queue {
	queues := slices.Clone(m.seen.queues)
	if m.filter != "" {
		queues = slices.DeleteFunc(queues, func(q locker.Queue) bool { return !m.matches(q) })
	}
	if m.contended {
		queues = slices.DeleteFunc(queues, func(q locker.Queue) bool { return waitersOf(q) == 0 })
	}
	sortQueues(m.sort, queues, m.seen.at)
	return queues
}

// matches reports whether the name of a queue, or an owner or note in it, contains the
// filter.
func (m *watchModel) matches(q locker.Queue) bool {
	return strings.Contains(q.Name, m.filter) || slices.ContainsFunc(q.Tickets, func(t locker.Ticket) bool {
		return strings.Contains(t.Owner, m.filter) || strings.Contains(t.Note, m.filter)
	})
}

// ticketsOf are the tickets of one lock; none: it is free.
func (m *watchModel) ticketsOf(name string) []locker.Ticket {
	for _, q := range m.seen.queues {
		if q.Name == name {
			return q.Tickets
		}
	}
	return nil
}
