package sqlqueue

import (
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// An Inbox takes the notices for a process.
type Inbox struct{ e *Engine }

// Ready says that everything that happens from now on is noticed.
func (in *Inbox) Ready() {
	in.Missed()
	in.e.book.setReceiving(true)
}

// Granted says that a ticket was granted.
func (in *Inbox) Granted(g Grant) { in.e.book.granted(g) }

// Missed says that notices may have been missed: grants, losses, and that any queue may be due.
func (in *Inbox) Missed() { in.e.book.mayHaveMissed() }

// Due says that the queue of a name is due, or sooner than it was.
func (in *Inbox) Due(name string) {
	in.e.book.setDue(name, time.Now())
	signal(in.e.book.changed)
}

// Lost says that a ticket was removed by somebody else.
func (in *Inbox) Lost(h driver.Hold) {
	if in.e.book.lost(h) && in.e.notifyLoss != nil {
		in.e.notifyLoss(h, errRemoved)
	}
}

// Text takes a notice in the form of a text, for stores whose notices have one:
//
//	g ID TOKEN HEARTBEAT  granted, as GrantText makes it
//	l ID TOKEN NAME       lost; the name in hexadecimal digits
//	d NAME                due
//
// Whoever may write to the store can send any text. All others say that notices were missed.
func (in *Inbox) Text(notice string) {
	var h driver.Hold
	var name string
	if g, ok := ParseGrant(notice); ok {
		in.Granted(g)
	} else if Scan(notice, "l %s %d %x", &h.ID, &h.Token, &h.Name) {
		in.Lost(h)
	} else if Scan(notice, "d %x", &name) {
		in.Due(name)
	} else {
		in.Missed()
	}
}

// GrantText makes the notice of a grant.
func GrantText(g Grant) string { return fmt.Sprintf("g %s %d %d", g.ID, g.Token, g.Heartbeat) }

// LostText makes the notice of a loss.
func LostText(h driver.Hold) string { return fmt.Sprintf("l %s %d %x", h.ID, h.Token, h.Name) }

// DueText makes the notice that a queue is due.
func DueText(name string) string { return fmt.Sprintf("d %x", name) }

// ParseGrant reads a grant.
func ParseGrant(s string) (g Grant, ok bool) {
	return g, Scan(s, "g %s %d %d", &g.ID, &g.Token, &g.Heartbeat)
}

// Scan reads a text of a format, and reports whether it is one.
func Scan(s, format string, into ...any) bool {
	_, err := fmt.Sscanf(s, format, into...)
	return err == nil
}
