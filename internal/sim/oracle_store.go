package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker"
)

// What is checked against the content of the store, whose times only the world knows: a holder must not
// believe for longer than the store's lease lasts, and what a process writes down of another one's silence must be true.

// lender is a model that knows until when a ticket is certainly there.
type lender interface {
	until(name string, token uint64) (end time.Time, ok bool)
}

func (b *bank) until(name string, token uint64) (time.Time, bool) {
	tickets, _ := b.memory.Inspect(context.Background(), name)
	for _, t := range tickets {
		if t.Token == token && t.Held {
			return time.Now().Add(t.Remaining), true
		}
	}
	return time.Time{}, false
}

func (c *cluster) until(name string, token uint64) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, kv := range c.data.keys {
		if uint64(kv.CreateRevision) == token && isTicketOf(key, name) { //nolint:gosec // positive
			if l := c.leases[kv.Lease]; l != nil {
				return l.from.Add(l.ttl), true
			}
		}
	}
	return time.Time{}, false
}

func (a *agent) until(name string, token uint64) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := a.keyOf(name, token); key != "" {
		if s := a.sessions[a.pairs[key].Session]; s != nil {
			return s.from.Add(s.ttl), true
		}
	}
	return time.Time{}, false
}

// believes checks that a holder believes in no lease that is longer than the store's. With mu held.
func (o *oracle) believes(h *hold, k *locker.Lock) {
	deadline := k.Deadline()
	for _, s := range o.w.servers {
		m, ok := s.model.(lender)
		if !ok {
			continue
		}
		if end, ok := m.until(h.name, h.token); ok && deadline.After(end) {
			o.w.fail("%v is believed until %v, and the lease of %s is over %v before", h, deadline.Sub(o.w.begun), s.name, deadline.Sub(end))
		}
	}
}

// signs are the signs of life that the documents of package casqueue have shown, and when each was there first.
type signs struct {
	w *world

	mu      sync.Mutex
	first   map[string]time.Time
	told    map[string]string      // what was observed of each record, as it was written last
	waiting map[string]watched     // tickets that have waited, by ID
	beats   map[string][]time.Time // the heartbeats of each process
}

// watched is a ticket that waits, and others watch.
type watched struct {
	process string
	since   time.Time
	life    time.Duration // without a heartbeat
}

func newSigns(w *world) *signs {
	return &signs{
		w: w, first: make(map[string]time.Time), told: make(map[string]string),
		waiting: make(map[string]watched), beats: make(map[string][]time.Time),
	}
}

// observed is what the documents have of that.
type observed struct {
	Queues []struct {
		Name    string `json:"n"`
		Tickets []struct {
			ID       string        `json:"i"`
			Process  string        `json:"p"`
			Token    uint64        `json:"k"`
			Lease    int           `json:"e"`
			TTL      time.Duration `json:"d"`
			Observed *struct {
				Clock     string        `json:"c"`
				At        time.Duration `json:"t"`
				Heartbeat string        `json:"h"`
			} `json:"b"`
		} `json:"t"`
	} `json:"q"`
}

// note takes in a document that is written now, and checks what it says that a process has observed: that a
// ticket and its heartbeat were there at a time, by a clock of the store. Zero is the time at which that showed nothing.
func (s *signs) note(key string, value []byte, zero func(clock string) time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if _, process, ok := strings.Cut(key, ":h:"); ok {
		heartbeat, _, _ := strings.Cut(string(value), "/") // visitors write it again, to be kept for longer
		if _, known := s.first[heartbeat]; !known {
			s.first[heartbeat] = now
			s.beats[process] = append(s.beats[process], now)
		}
	}
	if !strings.Contains(key, ":q:") {
		return
	}
	var doc observed
	_ = json.Unmarshal(value, &doc) // it may be of no program of ours
	for _, q := range doc.Queues {
		for _, t := range q.Tickets {
			record := fmt.Sprint(q.Name, " ", t.ID, " ", t.Token, " ", t.Lease)
			first, known := s.first[record]
			if !known {
				s.first[record] = now
				s.waiting[t.ID] = watched{t.Process, now, min(t.TTL, 4*time.Second)}
			}
			if t.Lease > 0 {
				delete(s.waiting, t.ID)
			}
			if t.Observed == nil {
				continue
			}
			what := fmt.Sprint(*t.Observed)
			if s.told[record] == what {
				continue
			}
			s.told[record] = what
			if heard := s.first[t.Observed.Heartbeat]; heard.After(first) {
				first = heard
			}
			if early := first.Sub(zero(t.Observed.Clock).Add(t.Observed.At)); known && early > 0 {
				s.w.fail("%s %d is said to have been as it is %v before it was: others may take it for dead too early", q.Name, t.Token, early)
			}
		}
	}
}

// stayed checks that a ticket which was granted after a wait, and whose lease was not written, could not be dead to others
// from when it was queued until the heartbeat that was sent at asked: then one of them may be about to remove it. The
// heartbeats that follow while its caller is told that it waits are not what the lease counts from.
func (s *signs) stayed(c *contract, name, id string, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.waiting[id]
	if !ok || s.w.lostSince(t.since) || time.Since(asked) >= t.life { // a lease that is over is believed by nobody
		return
	}
	last := t.since
	for _, at := range s.beats[t.process] {
		if at.Before(t.since) {
			continue
		}
		if silent := at.Sub(last); silent > t.life+10*time.Millisecond {
			s.w.fail("%s: the lease of %s counts from a heartbeat before which there was none for %v", c.process, name, silent)
			return
		}
		if last = at; !at.Before(asked) {
			return
		}
	}
}

// released notes that a ticket is to be removed, whatever its process has said of its life.
func (s *signs) released(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

// confirmed reports whether the store has confirmed the release of a ticket, and no fault has concerned its process
// from then on: what was before is no reason for the next waiter to wait. With mu held.
func (o *oracle) confirmed(b *part, until time.Time) bool {
	return len(o.w.servers) == 1 && b.hold != nil && b.hold.released && b.hold.gone.Before(until) && o.w.faulty(b.c.p.name, b.hold.gone, until) == 0
}
