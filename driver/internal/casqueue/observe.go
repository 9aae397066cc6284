package casqueue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

const (
	liveness = 4 * time.Second // of a waiter, after the last sign of life of its process

	mostSample  = time.Second // between two looks at the signs of life
	leastSample = 50 * time.Millisecond

	window = 8 // the waiters that are watched
)

// patience is how long a process must have seen no sign of life before it may conclude that a ticket is dead.
// The margin beyond the life of the ticket is for clocks that do not run equally fast.
func patience(life time.Duration) time.Duration { return life + life/20 + 100*time.Millisecond }

// sampleEvery is the interval of looks at the signs of life of tickets with that life.
func sampleEvery(life time.Duration) time.Duration {
	return max(leastSample, min(life/4, mostSample))
}

// sighting is what this process has seen of the heartbeat of another one. Times are of this process's monotonic clock.
type sighting struct {
	content string
	since   time.Time // when it was first seen as it is
	asked   time.Time // the last reading that has found it so was begun then
}

// seeHeartbeat notes a heartbeat. No heartbeat is like one that does not change: the store has forgotten it. With mu
// held.
func (e *Engine) seeHeartbeat(process, content string, asked time.Time) {
	s := e.heartbeats[process]
	if s == nil || content != "" && s.content != content {
		s = &sighting{content: content, since: time.Now()}
		e.heartbeats[process] = s
	}
	s.asked = asked
}

// silence is the time in which this process has looked, and seen no sign of life of a ticket: neither its record
// nor the heartbeat of its process has changed. What was seen before the record was is no proof: the heartbeat of
// a process that neither waited nor renewed did not change, and the new record is a sign of life. That the record
// has not changed until now is certain if the document that it was seen in is the one that is replaced.
//
// The heartbeats of this process are for its own tickets. One that is none of these is of nobody: its Acquire has
// failed, and it is to be released, or the store has it again because it has lost its last changes. With mu held.
func (e *Engine) silence(r *record, now time.Time) (since, until time.Time) {
	switch b := e.heartbeats[r.Process]; {
	case r.seen.IsZero():
		return now, now
	case r.Fixed && r.Lease > 0, r.Process == e.process && e.tickets[r.ID] == nil:
		return r.seen, now
	case b == nil:
		return r.seen, r.seen
	case b.since.After(r.seen):
		return b.since, b.asked
	default:
		return r.seen, b.asked
	}
}

// dead reports whether a ticket may be removed: this process has seen no sign of life for longer than it lives, and
// its owner counts on no heartbeat that was answered later than that (ticket.alive). With mu held.
func (e *Engine) dead(f *file, r *record, now time.Time) bool {
	limit := patience(r.life())
	if t := e.tickets[r.ID]; t != nil && t.file.key == f.key {
		return t.fixed && t.state == held && now.Sub(t.alive) > limit
	}
	since, until := e.silence(r, now)
	return until.Sub(since) > limit
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
		urgent: true,
		apply: func(d *document, _ bool) (changed bool, err error) {
			for _, q := range d.Queues {
				changed = e.reap(f, q) || changed
			}
			return changed, nil
		},
	}
}

// watch adds the processes whose heartbeats decide about the tickets of q before the given one, as far as these
// were not read a moment ago, and returns how soon to look again. Those are the holders and, before each ticket of
// this process, the nearest waiters: as many as the window, besides those that are silent, unless those are as
// many too. Then all are watched, since the processes that would watch the others may be dead. With mu held.
func (e *Engine) watch(f *file, q *queue, before int, processes map[string]struct{}) (interval time.Duration) {
	interval = mostSample
	now := time.Now()
	granted := driver.Granted(q.views())
	live, silent := 0, 0
	for i := before - 1; i >= 0; i-- {
		r := &q.Tickets[i]
		life, every := r.life(), sampleEvery(r.life())
		since, until := e.silence(r, now)
		switch {
		case e.own(f, r.ID) != nil:
			live, silent = 0, 0
			continue
		case granted[i]:
		case live >= window && silent < window:
			continue
		case until.After(since) && now.Sub(since) > every*3/2:
			silent++
		default:
			live++
		}
		rest := patience(life) - now.Sub(since) // until a conclusion is possible
		interval = min(interval, every)
		if rest > 0 {
			interval = min(interval, rest+time.Millisecond)
		}
		if b := e.heartbeats[r.Process]; b == nil || rest <= 0 || now.Sub(b.asked) >= every/2 {
			processes[r.Process] = struct{}{}
		}
	}
	return interval
}

// atOnce is how many documents are read with one request.
const atOnce = 100

// sample reads heartbeats and, with them, documents.
func (e *Engine) sample(ctx context.Context, processes map[string]struct{}, files map[*file]struct{}) error {
	names, fs := slices.Collect(maps.Keys(processes)), slices.Collect(maps.Keys(files))
	keys := make([]string, 0, len(names)+len(fs))
	for _, process := range names {
		keys = append(keys, e.heartbeatKey(process))
	}
	for _, f := range fs {
		keys = append(keys, f.key)
	}
	asked := time.Now()
	docs := make([]Document, 0, len(keys))
	for chunk := range slices.Chunk(keys, atOnce) {
		read, err := e.store.Get(ctx, chunk...)
		e.answered(err)
		if err != nil {
			return err
		}
		docs = append(docs, read...)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, process := range names {
		e.seeHeartbeat(process, string(docs[i].Value), asked)
	}
	for i, f := range fs {
		e.took(f, docs[len(names)+i], asked)
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
		if f.doc.size() == 0 {
			used = forgetEmpty
		}
		if len(f.own) == 0 && !f.writing && !f.unanswered && now.Sub(f.asOf) > used && now.Sub(f.taken) > used {
			delete(e.files, key)
		}
	}
	for process, s := range e.heartbeats {
		if now.Sub(s.asked) > forgetOther {
			delete(e.heartbeats, process)
		}
	}
}
