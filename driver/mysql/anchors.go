package mysql

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A process that takes a name again and again leaves the anchor idle when it releases the name. It
// takes the name again by changing that row, if nothing else has changed it. That costs the server a
// seventh less than to delete and insert a row in four indexes, and half where many names are in use
// at once. To another process an idle anchor is one whose ticket is gone. Names that are used once
// leave nothing. An idle anchor is deleted when its name was not used for idleFor, and when the
// driver is closed. It is not taken on another start of the server, which may have lost the tokens
// that were given since.
const (
	idleFor   = 10 * time.Second
	idleNames = 1024 // most names that a process remembers
)

// anchors are those of the names that this process uses.
type anchors struct {
	d *Driver

	mu    sync.Mutex
	names map[string]*anchor
}

type anchor struct {
	token uint64 // of the last ticket
	start uint64 // of the server that gave it
	again bool   // the name was used before
	idle  bool   // the ticket was released, and the anchor left
	at    time.Time
}

// granted records that a ticket was granted as the anchor.
func (a *anchors) granted(r *driver.Request, t ticket) {
	s := a.d.known.Load()
	if !t.granted || r.Shared || s == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.names[r.Name]
	if old == nil && len(a.names) >= idleNames {
		return
	}
	a.names[r.Name] = &anchor{token: t.token, start: s.start, again: old != nil, at: time.Now()}
}

// idle returns the token of the last ticket of an idle anchor, only once for each time that it is
// idle; 0: there is none.
func (a *anchors) idle(r *driver.Request) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, s := a.names[r.Name], a.d.known.Load()
	if n == nil || !n.idle || r.Shared || s == nil || s.start != n.start {
		return 0
	}
	n.idle = false
	return n.token
}

// stays returns the start of the server on which the release of a ticket leaves its anchor idle; 0:
// it does not.
func (a *anchors) stays(h driver.Hold) (start uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.names[h.Name]
	if n == nil || n.token != h.Token || !n.again || h.Token%turns == turns-1 {
		return 0
	}
	return n.start
}

// left records that the anchor of a ticket was left idle.
func (a *anchors) left(h driver.Hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.names[h.Name]; n != nil && n.token == h.Token {
		n.idle, n.at = true, time.Now()
	}
}

// clear forgets the names that were not used for so long, and deletes their idle anchors.
func (a *anchors) clear(ctx context.Context, unused time.Duration) {
	a.mu.Lock()
	idle := make(map[string]bool)
	maps.DeleteFunc(a.names, func(name string, n *anchor) bool {
		old := time.Since(n.at) >= unused
		if old && n.idle {
			idle[name] = true
		}
		return old
	})
	a.mu.Unlock()
	for some := range slices.Chunk(slices.Sorted(maps.Keys(idle)), batch) {
		_, _ = a.d.exec(ctx, "idle_clear", values{names: some}) // if that fails, a sweep does it
	}
}
