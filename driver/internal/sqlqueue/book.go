package sqlqueue

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
)

// A book has the tickets of this process: those that wait, those that are held, and those that may be there although nobody
// here has them, by their IDs.
//
//	add ──> queued ──> granted: by a grant in an answer, by a notice, or by compare ──> held
//	 │        └─────> ErrLost: the process expired, or the ticket was broken
//	 └──> remove: granted at once (held), or refused
//
// An answer to one request for a ticket says nothing about the others, which may be pending: under way, or not answered and
// still to arrive. What is known of an ID holds for all of them, until a release of the ticket was answered.
type book struct {
	liveness     time.Duration
	listenToWait bool          // see Options
	changed      chan struct{} // wakes the background task
	reconnect    chan struct{} // the listener has to begin anew

	mu         sync.Mutex
	process    int64 // ID of this process in the database; see process.go
	registered bool  // the database knows it
	heartbeats [8]heartbeat
	answered   time.Time // when the answer to the last heartbeat came
	since      time.Time // when the database was found to know it
	fault      error     // why the last heartbeat failed; nil: it did not

	byID      map[string]*waiter
	byName    map[string]*waitedFor
	held      map[string]uint64 // and its token
	requests  map[string]requests
	tidyAt    int           // number of those at which to forget the old ones
	used      time.Time     // when the last ticket stopped waiting, or was granted at once
	waited    time.Time     // when the last ticket that was queued stopped waiting
	missed    bool          // grants and losses may have been missed
	receiving bool          // notices arrive
	opening   chan struct{} // closed when the listener that was started receives notices, or has failed; else nil

	attending, listening, sweeping bool // the goroutines of these names run
}

// A heartbeat was sent and has been answered by the database.
type heartbeat struct {
	number int64
	sent   time.Time
}

// A waiter is a ticket that this process waits for.
type waiter struct {
	name, id string
	ttl      time.Duration
	process  int64
	shared   bool
	again    bool         // there may have been an earlier ticket with its ID: what is heard of it may be about that
	queued   time.Time    // since when it is known to be queued; zero: not yet
	seen     time.Time    // when the last request was sent whose answer has shown that
	outcome  chan outcome // of one
}

// An outcome ends a wait.
type outcome struct {
	token uint64
	until time.Time // the lease lasts at least until then
	err   error
}

// wasQueued reports whether a waiter was known to be queued before a time.
func (w *waiter) wasQueued(before time.Time) bool {
	return !w.queued.IsZero() && w.queued.Before(before)
}

// waitedFor is a name that some waiters wait for.
type waitedFor struct {
	waiters int
	due     time.Time // when to check its queue
}

// requests are those for a ticket, until a release of it was answered.
type requests struct {
	calls int       // of Acquire, which are under way
	until time.Time // no request arrives later that was not answered; zero: all were answered, and the ticket was not left
}

// pending reports whether one of them may have taken the ticket after a time, or may still do so.
func (r requests) pending(after time.Time) bool { return r.calls > 0 || after.Before(r.until) }

// forgetAfter is how long after that a ticket is forgotten that nobody has released.
const forgetAfter = time.Minute

func newBook(liveness time.Duration) book {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	return book{
		liveness: liveness,
		changed:  make(chan struct{}, 1), reconnect: make(chan struct{}, 1),
		process: int64(binary.BigEndian.Uint64(id[:])>>1) | 1, //nolint:gosec // 63 bits
		byID:    make(map[string]*waiter), byName: make(map[string]*waitedFor), held: make(map[string]uint64),
		requests: make(map[string]requests),
		used:     time.Now(),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// asked records that Acquire asks for a ticket no longer, and until when its last request may arrive, if that was not answered;
// zero: it was. It reports whether the ticket is unreleased, by this call or another one.
func (b *book) asked(id string, until time.Time) (unreleased bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(id, -1, until)
	return b.unreleased(id)
}

// unanswered records until when a request may arrive that was not answered.
func (b *book) unanswered(w *waiter, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.again = true
	b.note(w.id, 0, until)
}

// note adds to the requests for a ticket. With mu held. The old ones are forgotten whenever there are twice as many as the last
// time.
func (b *book) note(id string, calls int, until time.Time) {
	r := b.requests[id]
	r.calls, r.until = r.calls+calls, later(r.until, until)
	if b.requests[id] = r; r == (requests{}) {
		delete(b.requests, id)
	}
	if len(b.requests) > b.tidyAt {
		maps.DeleteFunc(b.requests, func(_ string, r requests) bool { return r.calls == 0 && time.Since(r.until) > forgetAfter })
		b.tidyAt = 2 * len(b.requests)
	}
}

// unreleased reports whether a ticket is held here, or was asked for and may have been left. With mu held.
func (b *book) unreleased(id string) bool {
	_, held := b.held[id]
	_, asked := b.requests[id]
	return held || asked
}

// known returns the token of a ticket that is held here, and the requests for it.
func (b *book) known(id string) (held uint64, r requests) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[id], b.requests[id]
}

// released records the answer to a release that was sent when this was known of the ticket.
func (b *book) released(id string, held uint64, then requests) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[id] == held {
		delete(b.held, id)
	}
	if b.requests[id] == then {
		delete(b.requests, id)
	}
}

// add adds a waiter before its ticket is requested, so that no notice of it is missed. It ends an earlier wait, which leaves the
// ticket.
func (b *book) add(r driver.Request) *waiter {
	w := &waiter{name: r.Name, id: r.ID, ttl: r.TTL, shared: r.Shared, outcome: make(chan outcome, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if earlier := b.byID[r.ID]; earlier != nil {
		b.drop(earlier)
		b.note(r.ID, 0, b.used)
		earlier.outcome <- outcome{err: errAskedAgain}
	}
	w.process, w.again = b.process, b.unreleased(r.ID)
	b.byID[r.ID] = w
	b.note(r.ID, 1, time.Time{})
	return w
}

// rejoin gives a waiter the present ID of the process.
func (b *book) rejoin(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.process = b.process
}

// queued records that a waiter is queued, by the answer to a request that was sent at sent, and when its queue is due. It reports
// false if its process expired meanwhile.
func (b *book) queued(w *waiter, sent time.Time, due time.Duration) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[w.id] != w {
		return true // its outcome is known already
	}
	if w.process != b.process {
		delete(b.byID, w.id) // a notice that is late grants it to nobody
		return false
	}
	w.queued, w.seen = now, sent
	if w.again || sent.Before(b.since) { // what was heard of it meanwhile was not believed, or its process's row may have been removed since
		b.missed = true
		signal(b.changed)
	}
	n := b.byName[w.name]
	if n == nil {
		longest := b.liveness / 4
		if !b.receiving {
			longest = min(longest, longestPoll) // see act
		}
		n = &waitedFor{due: now.Add(min(due, longest))}
		b.byName[w.name] = n
		signal(b.changed)
	}
	n.waiters++
	return true
}

// remove removes a waiter, if it is there. If it was queued, it leaves its ticket.
func (b *book) remove(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[w.id] != w {
		return
	}
	if b.drop(w); !w.queued.IsZero() {
		b.note(w.id, 0, b.used)
	}
}

// hold records that a ticket was granted at once.
func (b *book) hold(w *waiter, token uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[w.id] == w {
		b.drop(w)
	}
	b.held[w.id] = token
}

// drop is remove with mu held.
func (b *book) drop(w *waiter) {
	delete(b.byID, w.id)
	b.used = time.Now()
	if w.queued.IsZero() {
		return
	}
	b.waited = b.used
	n := b.byName[w.name]
	if n.waiters--; n.waiters == 0 {
		delete(b.byName, w.name)
	}
}

// end ends a wait. With mu held.
func (b *book) end(w *waiter, o outcome) {
	b.drop(w)
	w.outcome <- o
}

// forget records that a ticket is not held any more.
func (b *book) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, id)
}

// granted delivers a grant. If it may be one of an earlier ticket, all are compared.
func (b *book) granted(g Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.byID[g.ID]
	if w == nil {
		return
	}
	if w.again {
		b.missed = true
		signal(b.changed)
		return
	}
	until := time.Time{}                                 // unknown: the lease has to be renewed
	i := uint64(g.Heartbeat) % uint64(len(b.heartbeats)) //nolint:gosec // a notice may have any number
	switch h := b.heartbeats[i]; {
	case h.number == g.Heartbeat && w.process == b.process:
		until = h.sent.Add(min(w.ttl, b.liveness)).Add(-life.SuspendedSince(h.sent))
	case w.shared && w.process == b.process && b.registered: // thousands may be granted at once: one request for all of them
		b.missed = true
		signal(b.changed)
		return
	}
	b.grant(w, g.Token, until)
}

// grant is granted with mu held.
func (b *book) grant(w *waiter, token uint64, until time.Time) {
	b.held[w.id] = token
	b.end(w, outcome{token: token, until: until})
}

// lost hears of a loss. It reports whether the ticket was held here. Whether one that waits is gone is known when all were compared.
func (b *book) lost(h driver.Hold) (held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.byID[h.ID]; w != nil {
		w.again, b.missed = true, true
		signal(b.changed)
	}
	token, held := b.held[h.ID]
	return held && token == h.Token
}

// dueNames returns names whose queues are due, at most most of them. None is due again before setDue.
func (b *book) dueNames(now time.Time, most int) (names []string, process int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, n := range b.byName {
		if !n.due.After(now) && len(names) < most {
			names = append(names, name)
			n.due = now.Add(time.Hour)
		}
	}
	return names, b.process
}

// setDue sets until when to check a queue again, unless it is to be checked sooner: a notice may have come while it was
// checked.
func (b *book) setDue(name string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.byName[name]; n != nil && at.Before(n.due) {
		n.due = at
	}
}

// compare updates the waiters from the tickets that the database has of one process. With all, they are all that wait or
// have a provisional lease. It reports whether there were grants (news), and whether the notice of one is overdue (late).
func (b *book) compare(m Mine, process int64, all bool) (news, late bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[string]bool, len(m.Tickets))
	for _, t := range m.Tickets {
		there[t.ID] = true
		switch w := b.byID[t.ID]; {
		case w == nil || w.again && !w.wasQueued(m.Sent):
		case t.Held:
			b.grant(w, t.Token, m.Sent.Add(t.Left))
			news, late = true, late || t.Left < min(w.ttl, b.liveness)*5/8 // its lease began with a heartbeat: up to a quarter was over at the grant
		case w.wasQueued(m.Sent):
			w.seen = m.Sent
		}
	}
	if !all {
		return news, late
	}
	for id, w := range b.byID {
		if !there[id] && w.process == process && w.wasQueued(m.Sent) {
			b.end(w, outcome{err: driver.ErrLost})
		}
	}
	return news, late
}

// mayHaveMissed records that grants or losses may have been missed, and that any queue may be due.
func (b *book) mayHaveMissed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missed = len(b.byID) > 0
	for _, n := range b.byName {
		n.due = time.Now()
	}
	signal(b.changed)
}

// toCompare returns, once, whether to compare all tickets, because grants and losses may have been missed.
func (b *book) toCompare() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	missed := b.missed && b.registered
	b.missed = b.missed && !b.registered
	return missed
}
