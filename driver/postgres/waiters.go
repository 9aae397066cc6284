package postgres

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// waiters has the tickets of this process: those that wait, and the IDs of those that are held.
//
//	add ──> queued ──> granted: by a grant in an answer, by a notification, or by compare ──> held
//	 │        └─────> ErrLost: the process expired, or the ticket was broken
//	 └──> remove: granted at once (held), or refused
//
// A ticket in the database that this process neither waits for nor holds is an orphan: the answer to its request was
// lost, or its caller has left. compare returns it, and the background task releases it.
type waiters struct {
	liveness  time.Duration
	changed   chan struct{} // wakes the background task
	reconnect chan struct{} // the listener needs a new connection

	mu         sync.Mutex
	process    int64 // ID of this process in the database; see process.go
	registered bool  // the database knows it
	heartbeats [8]heartbeat
	answered   time.Time // when the answer to the last heartbeat came
	fault      error     // why the last heartbeat failed; nil: it did not

	byID      map[string]*waiter
	byName    map[string]*waitedFor
	held      map[string]struct{}
	used      time.Time // when the last ticket stopped waiting, or was granted at once
	waited    time.Time // when the last ticket that was queued stopped waiting
	missed    bool      // grants and losses may have been missed
	receiving bool      // notifications arrive

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
	queued   time.Time    // when it was known to be queued; zero: not yet
	outcome  chan outcome // of one
	arriving time.Time    // of Acquire: until then a request that was not answered may still arrive
}

// An outcome ends a wait.
type outcome struct {
	token uint64
	until time.Time // the lease lasts at least until then
	err   error
}

// waitedFor is a name that some waiters wait for.
type waitedFor struct {
	waiters int
	due     time.Time // when to check its queue
	stuck   time.Time // since when something is due in it; zero: nothing is
}

func newWaiters(liveness time.Duration) waiters {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return waiters{
		liveness: liveness,
		changed:  make(chan struct{}, 1), reconnect: make(chan struct{}, 1),
		process: int64(binary.BigEndian.Uint64(b[:])>>1) | 1, //nolint:gosec // 63 bits
		byID:    make(map[string]*waiter), byName: make(map[string]*waitedFor), held: make(map[string]struct{}),
		used: time.Now(),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add adds a waiter before its ticket is requested, so that no notification of it is missed.
func (ws *waiters) add(r driver.Request) *waiter {
	w := &waiter{name: r.Name, id: r.ID, ttl: r.TTL, outcome: make(chan outcome, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.process = ws.process
	ws.byID[r.ID] = w
	return w
}

// rejoin gives a waiter the present ID of the process.
func (ws *waiters) rejoin(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.process = ws.process
}

// queued records that a waiter is queued, and when its queue is due. It reports false if its process expired meanwhile.
func (ws *waiters) queued(w *waiter, due time.Duration) bool {
	now := time.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byID[w.id] != w {
		return true // its outcome is known already
	}
	if w.process != ws.process {
		delete(ws.byID, w.id)
		return false
	}
	w.queued = now
	n := ws.byName[w.name]
	if n == nil {
		longest := ws.liveness / 4
		if !ws.receiving {
			longest = min(longest, longestPoll) // see act
		}
		n = &waitedFor{due: now.Add(min(due, longest))}
		ws.byName[w.name] = n
		signal(ws.changed)
	}
	n.waiters++
	return true
}

// remove removes a waiter, if it is there. With granted its ticket is held.
func (ws *waiters) remove(w *waiter, granted bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byID[w.id] == w {
		ws.drop(w)
	}
	if granted {
		ws.held[w.id] = struct{}{}
	}
}

// drop is remove with mu held.
func (ws *waiters) drop(w *waiter) {
	delete(ws.byID, w.id)
	ws.used = time.Now()
	if w.queued.IsZero() {
		return
	}
	ws.waited = ws.used
	n := ws.byName[w.name]
	if n.waiters--; n.waiters == 0 {
		delete(ws.byName, w.name)
	}
}

// end ends a wait. With mu held.
func (ws *waiters) end(w *waiter, o outcome) {
	ws.drop(w)
	w.outcome <- o
}

// forget records that a ticket is not held any more.
func (ws *waiters) forget(id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.held, id)
}

// granted delivers a grant. One for an unknown ticket, perhaps an orphan, makes the background task compare.
func (ws *waiters) granted(g grant) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[g.id]
	if w == nil {
		if _, known := ws.held[g.id]; !known {
			ws.missed = true
			signal(ws.changed)
		}
		return
	}
	until := time.Time{}                                  // unknown: the lease has to be renewed
	i := uint64(g.heartbeat) % uint64(len(ws.heartbeats)) //nolint:gosec // a notification may have any number
	if b := ws.heartbeats[i]; b.number == g.heartbeat {
		until = b.sent.Add(min(w.ttl, ws.liveness))
	}
	ws.grant(w, g.token, until)
}

// grant is granted with mu held.
func (ws *waiters) grant(w *waiter, token uint64, until time.Time) {
	ws.held[w.id] = struct{}{}
	ws.end(w, outcome{token: token, until: until})
}

// lost delivers a loss. It reports whether the ticket was held here.
func (ws *waiters) lost(id string) (held bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil {
		ws.end(w, outcome{err: driver.ErrLost})
		return false
	}
	_, held = ws.held[id]
	return held
}

// dueNames returns names whose queues are due, at most most of them. None is due again before setDue.
func (ws *waiters) dueNames(now time.Time, most int) (names []string, process int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for name, n := range ws.byName {
		if !n.due.After(now) && len(names) < most {
			names = append(names, name)
			n.due = now.Add(time.Hour)
		}
	}
	return names, ws.process
}

// setDue sets until when to check a queue again, unless it is to be checked sooner: a notification may have come while it
// was checked.
func (ws *waiters) setDue(name string, at time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := ws.byName[name]; n != nil && at.Before(n.due) {
		n.due = at
	}
}

// stuckFor records that something is due in a queue, and returns for how long it has been.
func (ws *waiters) stuckFor(name string) time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.byName[name]
	if n == nil {
		return 0
	}
	if n.stuck.IsZero() {
		n.stuck = time.Now()
	}
	return time.Since(n.stuck)
}

// moved records that nothing is due in a queue.
func (ws *waiters) moved(name string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := ws.byName[name]; n != nil {
		n.stuck = time.Time{}
	}
}

// ticketRow is a ticket of this process as the database has it.
type ticketRow struct {
	id, name string
	token    uint64
	held     bool
	left     time.Duration // of its lease, counted from the request
}

// compare updates the waiters from rows that the database returned to a request sent at asked. With all, the rows are
// all tickets of one process that wait or have a provisional lease. It returns the orphans, and whether there were
// grants without a notification.
func (ws *waiters) compare(rows []ticketRow, process int64, asked time.Time, all bool) (orphans []ticketRow, news bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	there := make(map[string]bool, len(rows))
	for _, r := range rows {
		there[r.id] = true
		w, held := ws.byID[r.id], false
		if w == nil {
			_, held = ws.held[r.id]
		}
		switch {
		case w == nil && !held:
			orphans = append(orphans, r)
		case w != nil && r.held:
			ws.grant(w, r.token, asked.Add(r.left))
			news = true
		}
	}
	if !all {
		return orphans, news
	}
	for id, w := range ws.byID {
		if !there[id] && w.process == process && !w.queued.IsZero() && w.queued.Before(asked) {
			ws.end(w, outcome{err: driver.ErrLost})
		}
	}
	return orphans, news
}

// mayHaveMissed records that grants or losses may have been missed.
func (ws *waiters) mayHaveMissed() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.byID) > 0 {
		ws.missed = true
		signal(ws.changed)
	}
}

// takeMissed reports, once, whether grants or losses may have been missed.
func (ws *waiters) takeMissed() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !ws.missed || !ws.registered {
		return false
	}
	ws.missed = false
	return true
}
