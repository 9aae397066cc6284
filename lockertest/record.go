package lockertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// Grant says who held a lock when, as the holder saw it.
type Grant struct {
	Name   string
	Owner  string
	Token  uint64
	Shared bool
	From   time.Time
	To     time.Time // when it was released or lost; zero while held
	Lost   bool      // not released
}

// record is the grants of a store, in order.
type record struct {
	mu     sync.Mutex
	grants []*Grant
}

// lose ends the grants of tickets that were taken away. Observers hear of the loss later.
func (r *record) lose(lost []driver.Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range lost {
		r.end(h.Name, h.Token, true)
	}
}

// end ends a grant, unless it has ended. With mu held.
func (r *record) end(name string, token uint64, lost bool) {
	for _, g := range r.grants {
		if g.Name == name && g.Token == token && g.To.IsZero() {
			g.To, g.Lost = time.Now(), lost
		}
	}
}

// observe is an observer of a Client.
func (r *record) observe(_ context.Context, e locker.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case locker.EventAcquired:
		r.grants = append(r.grants, &Grant{
			Name: e.Name, Owner: e.Owner, Token: e.Token, Shared: e.Shared, From: time.Now(),
		})
	case locker.EventReleased, locker.EventLost:
		r.end(e.Name, e.Token, e.Kind == locker.EventLost)
	}
}

// Grants returns the grants of name, in order, to all Lockers on the store.
func (l *Locker) Grants(name string) []Grant {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	var grants []Grant
	for _, g := range l.s.grants {
		if g.Name == name {
			grants = append(grants, *g)
		}
	}
	return grants
}

// AssertFree reports an error of the test for each of the names that any Locker
// holds or waits for, whatever the faults; without names, for each name in the
// store. A ticket that is being removed in the background, after a fault, or is
// kept for its minimum hold, is still there.
func (l *Locker) AssertFree(tb testing.TB, names ...string) {
	tb.Helper()
	if len(names) == 0 {
		names, _ = l.s.d.List(context.Background()) // never fails: d is not closed
	}
	for _, name := range names {
		if queue, _ := l.s.d.Inspect(context.Background(), name); len(queue) > 0 {
			tb.Errorf("lock %q is not free: %s", name, describe(queue))
		}
	}
}

// AssertHeld reports an error of the test unless this Locker holds name.
func (l *Locker) AssertHeld(tb testing.TB, name string) {
	tb.Helper()
	if len(l.d.holdsOf(name)) > 0 {
		return
	}
	queue, _ := l.s.d.Inspect(context.Background(), name)
	tb.Errorf("lock %q is not held by this Locker: %s", name, describe(queue))
}

// describe returns a queue as text.
func describe(queue []driver.Ticket) string {
	if len(queue) == 0 {
		return "nobody has it"
	}
	words := make([]string, len(queue))
	for i, t := range queue {
		verb := "waits"
		if t.Held {
			verb = "holds it"
		}
		words[i] = fmt.Sprintf("%s %s since %s", t.Owner, verb, t.Since.Format(time.TimeOnly))
	}
	return strings.Join(words, ", ")
}
