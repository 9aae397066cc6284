package casqueue

import (
	"context"
	"slices"
	"time"
)

const (
	liveness = 4 * time.Second // of a waiter, after the last sign of life of its process

	mostSample  = time.Second // between two looks at the signs of life
	leastSample = 50 * time.Millisecond
)

// patience is how long a process must have seen no sign of life before it may conclude that a ticket is dead.
// The margin beyond the life of the ticket is for clocks that do not run equally fast.
func patience(life time.Duration) time.Duration { return life + life/20 + 100*time.Millisecond }

// sampleEvery is the interval of looks at the signs of life of tickets with that life.
func sampleEvery(life time.Duration) time.Duration {
	return max(leastSample, min(life/4, mostSample))
}

// sighting is what this process has seen of something that changes while its owner lives. Times are of this
// process's monotonic clock.
type sighting struct {
	content string    // of a heartbeat
	token   uint64    // of a ticket
	lease   int       // of a ticket
	since   time.Time // when it was first seen as it is
	asked   time.Time // the last reading that has found it so was begun then
}

// see notes the tickets of a document. With mu held.
func (f *file) see(now time.Time) {
	seen := make(map[string]sighting)
	for _, q := range f.doc.Queues {
		for i := range q.Tickets {
			r := &q.Tickets[i]
			old, ok := f.seen[r.ID]
			if !ok || old.token != r.Token || old.lease != r.Lease {
				old = sighting{token: r.Token, lease: r.Lease, since: now}
			}
			seen[r.ID] = old
		}
	}
	f.seen = seen
}

// seeHeartbeat notes a heartbeat. No heartbeat is like one that does not change. With mu held.
func (e *Engine) seeHeartbeat(process, content string, asked time.Time) {
	s := e.heartbeats[process]
	if s == nil || s.content != content {
		s = &sighting{content: content, since: time.Now()}
		e.heartbeats[process] = s
	}
	s.asked = asked
}

// dead reports whether a ticket may be removed, because neither it nor the heartbeat of its process has changed
// for longer than it lives. That the ticket has not changed since is certain if the document that it was seen in
// is replaced by version; that the heartbeat has not changed is as old as the last reading of it, which has to be
// that much younger than the ticket, too. The owner counts on no heartbeat that was answered later than its life
// allows (ticket.alive). With mu held.
func (e *Engine) dead(f *file, r *record, now time.Time) bool {
	limit := patience(r.life())
	if t := f.own[r.ID]; t != nil {
		return t.fixed && t.state == held && now.Sub(t.alive) > limit
	}
	s, ok := f.seen[r.ID]
	if !ok {
		return false
	}
	if r.Fixed && r.Lease > 0 {
		return now.Sub(s.since) > limit
	}
	b := e.heartbeats[r.Process]
	return b != nil && b.asked.Sub(b.since) > limit && b.asked.Sub(s.since) > limit
}

// reap removes the dead tickets of a queue. With mu held.
func (e *Engine) reap(f *file, q *queue) (changed bool) {
	now := time.Now()
	before := len(q.Tickets)
	q.Tickets = slices.DeleteFunc(q.Tickets, func(r record) bool { return e.dead(f, &r, now) })
	return len(q.Tickets) < before
}

// anyDead reports whether a document has dead tickets. With mu held.
func (e *Engine) anyDead(f *file) bool {
	now := time.Now()
	for _, q := range f.doc.Queues {
		if slices.ContainsFunc(q.Tickets, func(r record) bool { return e.dead(f, &r, now) }) {
			return true
		}
	}
	return false
}

// reaping is the change that removes the dead tickets of a document.
func (e *Engine) reaping(f *file) *change {
	return &change{
		apply: func(d *document, _ bool) (changed bool, err error) {
			for _, q := range d.Queues {
				changed = e.reap(f, q) || changed
			}
			return changed, nil
		},
		done: func(time.Time, error) {},
	}
}

// watched returns the processes whose heartbeats decide about the tickets of q before the given one, as far as
// these were not read a moment ago, and how soon to look again. With mu held.
func (e *Engine) watched(f *file, q *queue, before int, processes map[string]struct{}) (interval time.Duration) {
	interval = mostSample
	now := time.Now()
	for i := range q.Tickets[:before] {
		r := &q.Tickets[i]
		if f.own[r.ID] != nil {
			continue
		}
		every := sampleEvery(r.life())
		interval = min(interval, every)
		if b := e.heartbeats[r.Process]; b == nil || now.Sub(b.asked) >= every/2 {
			processes[r.Process] = struct{}{}
		}
	}
	return interval
}

// sample reads heartbeats and, in the same request, documents.
func (e *Engine) sample(ctx context.Context, processes map[string]struct{}, files []*file) error {
	var keys, names []string
	for _, f := range files {
		keys = append(keys, f.key)
	}
	for process := range processes {
		names = append(names, process)
		keys = append(keys, e.heartbeatKey(process))
	}
	if len(keys) == 0 {
		return nil
	}
	asked := time.Now()
	docs, err := e.store.Get(ctx, keys...)
	e.answered(err)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, process := range names {
		e.seeHeartbeat(process, string(docs[len(files)+i].Value), asked)
	}
	for i, f := range files {
		e.took(f, docs[i], asked)
	}
	return nil
}

const (
	forgetEmpty = keepEmpty       // files without tickets
	forgetOther = 5 * time.Minute // files with tickets of others, and their heartbeats
)

// forgetFiles forgets what has not been used for a while, now and then. With mu held.
func (e *Engine) forgetFiles() {
	now := time.Now()
	if now.Sub(e.forgot) < forgetEmpty/3 {
		return
	}
	e.forgot = now
	for key, f := range e.files {
		used := forgetOther
		if len(f.seen) == 0 {
			used = forgetEmpty
		}
		if len(f.own) == 0 && !f.writing && !f.unanswered && now.Sub(f.asOf) > used {
			delete(e.files, key)
		}
	}
	for process, s := range e.heartbeats {
		if now.Sub(s.asked) > forgetOther {
			delete(e.heartbeats, process)
		}
	}
}
