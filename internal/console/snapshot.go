package console

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/queues"
)

// snapshot is what browsers are shown of a store. It never changes once it is
// published, and a queue in which nothing happened is the same queueView as in
// the snapshot before.
type snapshot struct {
	Status status
	queues map[string]*queueView
}

// queueView is a queue as browsers get it. Moments are in milliseconds since 1970.
type queueView struct {
	Name    string       `json:"name"`
	Tickets []ticketView `json:"tickets"` // the first ones, holders before waiters
	Holders int          `json:"holders"`
	Waiters int          `json:"waiters"`
	Oldest  int64        `json:"oldest,omitempty"` // when the waiter queued that waits longest
	Grants  uint64       `json:"grants"`           // seen since the console knows the queue
	Seq     uint64       `json:"seq"`              // of the newest event
	Free    int64        `json:"free,omitempty"`   // since when nobody is there
}

type ticketView struct {
	Token  string `json:"token"` // more digits than a JavaScript number has
	Owner  string `json:"owner"`
	Note   string `json:"note,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Held   bool   `json:"held,omitempty"`
	Since  int64  `json:"since,omitempty"` // by the store's clock
	Ends   int64  `json:"ends,omitempty"`  // of the lease, by the console's clock
	Lease  int64  `json:"lease,omitempty"` // the longest remaining lease seen, in milliseconds
}

// absorb makes the queues of the next snapshot of what a poll saw.
func (s *store) absorb(seen []queues.Reading, at time.Time) map[string]*queueView {
	within := at.Sub(s.polled)
	first := s.polled.IsZero()
	s.polled = at
	s.polls.add(at, within, first)
	there := make(map[string]bool, len(seen))
	for _, q := range seen {
		there[q.Name] = true
		r := s.records[q.Name]
		if r == nil {
			r = &record{name: q.Name, since: at}
			s.records[q.Name] = r
			if first { // what was there when the console came is no event
				r.last, r.lease = q.Tickets, make(map[key]time.Duration)
			}
		}
		r.update(q.Tickets, q.At, within)
	}
	for name, r := range s.records {
		if !there[name] && len(r.last) > 0 {
			r.update(nil, at, within)
		}
	}
	s.forget(at)
	views := make(map[string]*queueView, len(s.records))
	for name, r := range s.records {
		if r.empty.IsZero() || at.Sub(r.empty) < showFree {
			r.view = r.refresh()
			views[name] = r.view
		}
	}
	return views
}

// forget drops the records of queues that have been empty for long, or are too
// many.
func (s *store) forget(at time.Time) {
	var empty []*record
	for _, r := range s.records {
		if !r.empty.IsZero() {
			empty = append(empty, r)
		}
	}
	slices.SortFunc(empty, func(a, b *record) int { return a.empty.Compare(b.empty) })
	for i, r := range empty {
		if len(empty)-i > maxFree || at.Sub(r.empty) > keepFree {
			delete(s.records, r.name)
		}
	}
}

// refresh returns the view of the queue: the one there is, if nothing changed.
func (r *record) refresh() *queueView {
	v := &queueView{
		Name: r.name, Grants: r.grants, Seq: r.seq,
		Tickets: r.tickets(maxStreamed),
	}
	if !r.empty.IsZero() {
		v.Free = r.empty.UnixMilli()
	}
	var longest locker.Ticket
	v.Holders, v.Waiters, longest = queues.Tally(locker.Queue{Tickets: r.last})
	v.Oldest = millis(longest.Since)
	if r.view != nil && r.view.same(v) {
		return r.view
	}
	return v
}

// tickets are the first n tickets of the queue, holders first.
func (r *record) tickets(n int) []ticketView {
	ts := slices.Clone(r.last)
	slices.SortStableFunc(ts, func(a, b locker.Ticket) int { return cmp.Compare(waits(a), waits(b)) })
	out := make([]ticketView, 0, min(n, len(ts)))
	for _, t := range ts[:min(n, len(ts))] {
		v := ticketView{
			Token: strconv.FormatUint(t.Token, 10), Owner: t.Owner, Note: t.Note,
			Shared: t.Shared, Limit: t.Limit, Held: t.Held, Since: millis(t.Since),
		}
		if t.Held && t.Remaining > 0 {
			v.Ends = r.at.Add(t.Remaining).UnixMilli()
			v.Lease = r.lease[keyOf(t)].Milliseconds()
		}
		out = append(out, v)
	}
	return out
}

func waits(t locker.Ticket) int {
	if t.Held {
		return 0
	}
	return 1
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// jitter is by how many milliseconds the same moment may differ between two polls.
const jitter = 300

func near(a, b int64) bool { return a-b <= jitter && b-a <= jitter }

// same tells whether a browser that has v needs no w.
func (v *queueView) same(w *queueView) bool {
	return v.Holders == w.Holders && v.Waiters == w.Waiters && near(v.Oldest, w.Oldest) &&
		v.Grants == w.Grants && v.Seq == w.Seq && v.Free == w.Free &&
		slices.EqualFunc(v.Tickets, w.Tickets, ticketView.same)
}

func (t ticketView) same(u ticketView) bool {
	moved := t
	moved.Since, moved.Ends, moved.Lease = u.Since, u.Ends, u.Lease
	return moved == u && near(t.Since, u.Since) && near(t.Ends, u.Ends) && near(t.Lease, u.Lease)
}

// diff returns the queues of s that a browser that has old does not have, by name,
// and the names of those that are gone.
func (s *snapshot) diff(old *snapshot) (set []*queueView, gone []string) {
	for name, v := range s.queues {
		if old == nil || old.queues[name] != v {
			set = append(set, v)
		}
	}
	if old != nil {
		for name := range maps.Keys(old.queues) {
			if s.queues[name] == nil {
				gone = append(gone, name)
			}
		}
	}
	slices.SortFunc(set, func(a, b *queueView) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(gone)
	return set, gone
}
