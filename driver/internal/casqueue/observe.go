package casqueue

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

const (
	liveness = 4 * time.Second // of a waiter, after the last sign of life of its process

	mostSample  = time.Second // between two readings of signs of life
	leastSample = 50 * time.Millisecond

	window = 8 // waiters are observed ahead of each ticket
)

// patience is how long a process must have observed a ticket, without a sign of life, before it may conclude that the
// ticket is dead. The margin beyond the ticket's life allows for clocks that do not run equally fast.
func patience(life time.Duration) time.Duration { return life + life/20 + 100*time.Millisecond }

// sampleEvery is the interval at which signs of life of tickets with that life are read.
func sampleEvery(life time.Duration) time.Duration {
	return max(leastSample, min(life/4, mostSample))
}

// sighting is what this process has seen of the heartbeat of another one. Times are of this process's monotonic clock.
type sighting struct {
	content string        // without keep
	version Version       // of the document that was read last
	keep    time.Duration // how long the store has to keep that, from when it was written
	since   time.Time     // when this content was first seen
	asked   time.Time     // when the last reading that found this content was begun
}

// seeHeartbeat notes a heartbeat. A missing one, which the store has forgotten, counts as one that does not change.
// With mu held.
func (e *Engine) seeHeartbeat(process string, read Document, asked time.Time) {
	content, wanted, _ := strings.Cut(string(read.Value), "/")
	s := e.heartbeats[process]
	if s == nil || content != "" && s.content != content {
		s = &sighting{content: content, since: time.Now()}
		e.heartbeats[process] = s
	}
	s.version, s.asked = read.Version, asked
	s.keep, _ = time.ParseDuration(wanted)
}

// heartbeat returns the document of a heartbeat. It has how long the store has to keep it: who writes it again, for one lock, asks for no
// less, because others have asked for more for the sake of another lock.
func heartbeat(content string, keep time.Duration) []byte {
	return fmt.Appendf(nil, "%s/%v", content, keep)
}

// silence is the period in which this process has observed a ticket and seen no sign of life: neither its record nor
// the heartbeat of its process has changed. The period does not begin before the record was first seen, since the
// record itself is a sign of life, and a process that neither waits nor renews sends no heartbeats. The caller may rely
// on the record being unchanged until now, because it replaces the document on condition that it is the one it has read.
//
// The heartbeats of this process count only for the tickets that it uses. A record of this process that it does not use
// belongs to an Acquire that has failed and is still to be released, or was brought back by a store that lost its last
// changes. With mu held.
func (e *Engine) silence(r *record, now time.Time) (since, until time.Time) {
	switch b := e.heartbeats[r.Process]; {
	case r.seen.IsZero():
		return now, now
	case r.ownLease(), r.Process == e.process && e.tickets[r.ID] == nil:
		return r.seen, now
	case b == nil:
		return r.seen, r.seen
	case b.since.After(r.seen):
		return b.since, b.asked
	default:
		return r.seen, b.asked
	}
}

// expired reports whether a ticket may be removed: this process has seen no sign of life for longer than the ticket's
// life. Its owner does not count on heartbeats that were answered later than that (ticket.alive). With mu held.
func (e *Engine) expired(r *record, now time.Time) bool {
	limit := patience(r.life())
	if t := e.tickets[r.ID]; t != nil {
		return t.fixed && t.state == held && now.Sub(t.alive) > limit
	}
	since, until := e.silence(r, now)
	return until.Sub(since) > limit
}

// reap removes the expired tickets of a queue. With mu held.
func (e *Engine) reap(q *queue) (changed bool) {
	now := time.Now()
	before := len(q.Tickets)
	q.Tickets = slices.DeleteFunc(q.Tickets, func(r record) bool { return e.expired(&r, now) })
	return len(q.Tickets) < before
}

// anyExpired reports whether a document has expired tickets. With mu held.
func (e *Engine) anyExpired(f *file) bool {
	now := time.Now()
	for _, q := range f.doc.Queues {
		if slices.ContainsFunc(q.Tickets, func(r record) bool { return e.expired(&r, now) }) {
			return true
		}
	}
	return false
}

// reaping is the change that removes the expired tickets of a document.
func (e *Engine) reaping() *change {
	return &change{
		urgent: true,
		apply: func(d *document, _ bool) (changed bool, err error) {
			for _, q := range d.Queues {
				changed = e.reap(q) || changed
			}
			return changed, nil
		},
	}
}

// observed yields the tickets of others in q that this process observes, of those ahead of the given index: the holders
// and, ahead of each ticket of this process, the nearest waiters that are not silent, up to the window. If as many
// waiters as the window are silent, it observes all, since the processes that would observe the others may be dead. With
// mu held.
func (e *Engine) observed(q *queue, before int, now time.Time) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		granted := driver.Granted(q.views())
		live, silent := 0, 0
		for i := before - 1; i >= 0; i-- {
			r := &q.Tickets[i]
			switch {
			case e.tickets[r.ID] != nil:
				live, silent = 0, 0
				continue
			case granted[i]:
			case live >= window && silent < window:
				continue
			case e.silent(r, now):
				silent++
			default:
				live++
			}
			if !yield(r) {
				return
			}
		}
	}
}

// silent reports whether a ticket has shown no sign of life for longer than a waiter needs for one. With mu held.
func (e *Engine) silent(r *record, now time.Time) bool {
	since, until := e.silence(r, now)
	return until.After(since) && now.Sub(since) > sampleEvery(r.life())*3/2
}

// watch adds the processes whose heartbeats must be read, to observe the tickets of q ahead of the given index, and
// returns how soon to read again. It leaves out heartbeats that were read a moment ago. With mu held.
func (e *Engine) watch(q *queue, before int, processes map[string]struct{}) (interval time.Duration) {
	interval = mostSample
	now := time.Now()
	for r := range e.observed(q, before, now) {
		life, every := r.life(), sampleEvery(r.life())
		since, _ := e.silence(r, now)
		rest := patience(life) - now.Sub(since) // until the ticket may be taken for dead
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

// atOnce is how many documents are read with one request. DynamoDB takes no more, NATS 1,024.
const atOnce = 100

// inFlight is how many requests read documents at the same time.
const inFlight = 8

// getAll reads documents, with several requests at the same time: the next heartbeat waits for it, and so do renewals.
func (e *Engine) getAll(ctx context.Context, keys []string) ([]Document, error) {
	chunks := slices.Collect(slices.Chunk(keys, atOnce))
	docs, errs := make([][]Document, len(chunks)), make([]error, len(chunks))
	var group sync.WaitGroup
	slots := make(chan struct{}, inFlight)
	for i, chunk := range chunks {
		get := func() {
			docs[i], errs[i] = e.store.Get(ctx, chunk...)
			e.answered(errs[i])
		}
		if slots <- struct{}{}; i == len(chunks)-1 {
			get()
			continue
		}
		group.Go(func() {
			get()
			<-slots
		})
	}
	group.Wait()
	return slices.Concat(docs...), cmp.Or(errs...)
}

// sample reads heartbeats and, with them, documents. Then each document is as it was when sample was called, or newer,
// unless files has an error for it.
func (e *Engine) sample(ctx context.Context, processes map[string]struct{}, files map[*file]error) error {
	names, fs := slices.Collect(maps.Keys(processes)), slices.Collect(maps.Keys(files))
	keys := make([]string, 0, len(names)+len(fs))
	for _, process := range names {
		keys = append(keys, e.heartbeatKey(process))
	}
	for _, f := range fs {
		keys = append(keys, f.key)
	}
	asked := time.Now()
	docs, err := e.getAll(ctx, keys)
	if err != nil {
		for _, f := range fs {
			files[f] = err
		}
		return err
	}
	again := make(map[*file]error)
	e.mu.Lock()
	for i, process := range names {
		if docs[i].Err == nil {
			e.seeHeartbeat(process, docs[i], asked)
		}
	}
	for i, f := range fs {
		d := docs[len(names)+i]
		if files[f] = d.Err; d.Err == nil && !e.took(f, d, asked) {
			again[f] = nil
		}
	}
	e.mu.Unlock()
	for _, d := range docs {
		err = cmp.Or(err, d.Err)
	}
	if err != nil {
		e.answered(err)
	}
	if len(again) > 0 {
		err = cmp.Or(err, e.sample(ctx, nil, again))
		maps.Copy(files, again)
	}
	return err
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
		if len(f.own) == 0 && !f.writing && !f.unanswered && now.Sub(f.notOlderThan) > used {
			delete(e.files, key)
		}
	}
	for process, s := range e.heartbeats {
		if now.Sub(s.asked) > forgetOther {
			delete(e.heartbeats, process)
		}
	}
}
