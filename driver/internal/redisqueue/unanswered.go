package redisqueue

import (
	"sync"
	"time"
)

// Unanswered has the tickets whose requests were sent and not answered. Such a request
// may still arrive, so a release leaves a tombstone for it. The zero value is empty.
type Unanswered struct {
	mu      sync.Mutex
	tickets map[string]unanswered
}

type unanswered struct {
	requests int
	at       time.Time
}

// Note notes the end of a call that may have queued its Ticket. Several may, one after the other.
func (u *Unanswered) Note(c *Call, err error) {
	if !c.Unanswered(err) {
		return
	}
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for old, x := range u.tickets {
		if now.Sub(x.at) > time.Minute {
			delete(u.tickets, old)
		}
	}
	if u.tickets == nil {
		u.tickets = make(map[string]unanswered)
	}
	u.tickets[c.ticket.id] = unanswered{u.tickets[c.ticket.id].requests + c.Sent(), now}
}

// Requests returns how many requests for a ticket may still arrive.
func (u *Unanswered) Requests(id string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tickets[id].requests
}

// Settled forgets a ticket whose release was answered.
func (u *Unanswered) Settled(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.tickets, id)
}
