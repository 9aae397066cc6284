// Package unborn remembers tickets of which a driver knows that the store has
// never had them: nothing was sent, or the store refused. Their release, which
// the core asks for after every failed acquisition, then needs no answer from a
// store that cannot be reached or that refuses to be asked.
package unborn

import "sync"

// most is how many are remembered: after that many, the oldest are forgotten all
// at once, and their release asks the store. Callers that do not release are
// none of the core's.
const most = 10000

// Set is a set of tickets, by ID. The zero value is empty. Its methods may be
// called from many goroutines at once.
type Set struct {
	mu  sync.Mutex
	ids map[string]bool // true: one release was asked for
}

// Add notes a ticket.
func (s *Set) Add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil || len(s.ids) >= most {
		s.ids = make(map[string]bool)
	}
	s.ids[id] = false
}

// Take reports whether a ticket is in the set, as its release asks. The core
// releases twice what was not there, since it might be yet to come: with the
// second time the ticket is forgotten.
func (s *Set) Take(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, ok := s.ids[id]
	switch {
	case asked:
		delete(s.ids, id)
	case ok:
		s.ids[id] = true
	}
	return ok
}
