package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// tokens numbers tickets. All stores share it, so that tokens grow for as long as the
// process lives, whatever is closed and opened again.
var tokens atomic.Uint64

// store is what a server is to other drivers.
type store struct {
	shared  bool
	clients int // of a shared store; guarded by sharedMu

	mu      sync.Mutex
	queues  map[string]*queue
	tickets map[string]*ticket // by ID
}

func newStore() *store {
	return &store{queues: make(map[string]*queue), tickets: make(map[string]*ticket)}
}

// The shared stores by name.
var (
	sharedMu sync.Mutex
	shared   = make(map[string]*store)
)

// openShared returns the shared store of a name, with one client more.
func openShared(name string) *store {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	s := shared[name]
	if s == nil {
		s = newStore()
		s.shared = true
		shared[name] = s
	}
	s.clients++
	return s
}

// closeShared removes one client. A shared store ends with its last client, unless a
// minimum hold is left in it: then the next client that opens the name gets it.
func closeShared(name string, s *store) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if s.clients--; s.clients == 0 && s.stop() {
		delete(shared, name)
	}
}

// stop stops the timers of a store without clients. It reports whether no minimum
// hold is left.
func (s *store) stop() bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.settle(now)
		q.disarm()
	}
	for _, t := range s.tickets {
		if t.req.MinHold > 0 {
			return false
		}
	}
	return true
}

// queue returns the queue of name, and makes it if necessary.
func (s *store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{s: s, name: name}
		s.queues[name] = q
	}
	return q
}

// change calls f for a live ticket and its queue. Without such a ticket, or with held and one that waits, it returns ErrLost.
func (s *store) change(h driver.Hold, held bool, f func(t *ticket, q *queue, now time.Time)) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[h.Name]; q != nil {
		q.settle(now)
	}
	t := s.tickets[h.ID]
	if t == nil || t.req.Name != h.Name || held && !t.held {
		return driver.ErrLost
	}
	f(t, s.queues[h.Name], now)
	return nil
}

// breakTicket removes the ticket with a token and returns it, or nil.
func (s *store) breakTicket(name string, token uint64) *ticket {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		return nil
	}
	q.settle(now)
	for t := range q.all() {
		if t.token == token {
			q.remove(t)
			q.settle(now)
			return t
		}
	}
	return nil
}
