package postgres

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// line is what this process knows of its own tickets: those that wait, and
// those it holds. The zero line is not usable; see init.
//
// To the database the process is a number that changes whenever it was silent
// for too long: an incarnation. Those of one driver differ in the low bits and
// share a notification channel.
type line struct {
	life time.Duration
	wake chan struct{} // the keeper looks at what has changed
	kick chan struct{} // the listener makes a new connection

	mu         sync.Mutex
	process    int64 // the present incarnation
	registered bool  // whether the database knows it
	beats      [8]beat
	lastBeat   time.Time // when the answer to the last beat that was heard came
	waiters    map[string]*waiter
	watched    map[string]*watch // by name
	held       map[string]bool   // by ID, of tickets that were granted: whether they waited
	used       time.Time         // when a ticket was last taken
	fault      error             // why the last beat was not heard
	reread     bool              // news may have been missed
	live       bool              // news arrive by themselves
	keeping    bool              // the keeper runs
	listening  bool              // the listener runs
}

// A beat is a sign of life that the database has heard.
type beat struct {
	number int64
	sent   time.Time
}

// A waiter is a ticket that this process waits for.
type waiter struct {
	name, id string
	ttl      time.Duration
	process  int64
	joined   time.Time    // when it was known to stand in line; zero: not yet
	news     chan outcome // of one
}

// An outcome ends a wait.
type outcome struct {
	token uint64
	until time.Time // the lease lasts at least until then
	err   error
}

// A watch is a name that somebody here waits for.
type watch struct {
	waiters int
	due     time.Time // when to look at its line
}

// incarnations of one driver.
const incarnations = 1 << 16

func (l *line) init(life time.Duration) {
	l.life = life
	l.wake = make(chan struct{}, 1)
	l.kick = make(chan struct{}, 1)
	l.waiters = make(map[string]*waiter)
	l.watched = make(map[string]*watch)
	l.held = make(map[string]bool)
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	l.process = int64(binary.BigEndian.Uint64(b[:])>>1) | 1
	l.used = time.Now()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// current is the present incarnation.
func (l *line) current() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.process
}

// next begins a new incarnation. With mu held.
func (l *line) next() {
	l.process = l.process&^(incarnations-1) | (l.process+1)&(incarnations-1)
	l.registered = false
	l.beats = [8]beat{}
}

// heard takes down a beat of an incarnation.
func (l *line) heard(process, number int64, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process != process {
		return
	}
	l.registered = true
	l.beats[number%int64(len(l.beats))] = beat{number, sent}
	l.lastBeat = time.Now()
	if l.fault != nil {
		l.fault, l.reread = nil, true
	}
}

// unheard takes down why a beat was not heard.
func (l *line) unheard(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = err
}

func (l *line) lastFault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// died ends an incarnation that the database has given up: its tickets have
// left the line, or will when somebody passes them.
func (l *line) died(process int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process != process {
		return
	}
	l.next()
	for _, w := range l.waiters {
		if w.process == process && !w.joined.IsZero() {
			l.end(w, outcome{err: driver.ErrLost})
		}
	}
}

// unregister ends an incarnation that nobody needs any more, in any case or if
// nobody waits; false if there is nothing to tell the database.
func (l *line) unregister(anyway bool) (process int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.registered || len(l.waiters) > 0 && !anyway {
		return 0, false
	}
	process = l.process
	l.next()
	return process, true
}

// add puts a waiter on the books, before its ticket is asked for, so that no
// news of it are missed.
func (l *line) add(r driver.Request) *waiter {
	w := &waiter{name: r.Name, id: r.ID, ttl: r.TTL, news: make(chan outcome, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.process = l.process
	l.waiters[r.ID] = w
	return w
}

// rejoin makes a waiter one of the present incarnation.
func (l *line) rejoin(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.process = l.process
}

// stands says that a waiter stands in line, and when to look at that. It
// reports false if its incarnation died meanwhile.
func (l *line) stands(w *waiter, due time.Duration) bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiters[w.id] != w {
		return true // there are news already
	}
	if w.process != l.process {
		delete(l.waiters, w.id)
		return false
	}
	w.joined = now
	n := l.watched[w.name]
	if n == nil {
		n = &watch{due: now.Add(min(due, l.life/4))}
		l.watched[w.name] = n
		signal(l.wake)
	}
	n.waiters++
	return true
}

// remove takes a waiter off the books. With granted its ticket counts as held.
func (l *line) remove(w *waiter, granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiters[w.id] == w {
		l.drop(w)
	}
	if granted {
		l.held[w.id] = false
	}
}

// drop is remove with mu held.
func (l *line) drop(w *waiter) {
	delete(l.waiters, w.id)
	l.used = time.Now()
	if w.joined.IsZero() {
		return
	}
	if n := l.watched[w.name]; n != nil {
		if n.waiters--; n.waiters == 0 {
			delete(l.watched, w.name)
		}
	}
}

// end tells a waiter its outcome. With mu held.
func (l *line) end(w *waiter, o outcome) {
	l.drop(w)
	w.news <- o
}

// waited reports whether somebody may stand behind a ticket, because it stood
// behind somebody or is not known.
func (l *line) waited(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waited, known := l.held[id]
	return waited || !known
}

// letGo says that a ticket is not held any more.
func (l *line) letGo(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
}

// granted delivers a grant. One for a ticket that nobody knows makes the
// keeper look: it may be that of a request whose answer was lost.
func (l *line) granted(g grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiters[g.id]
	if w == nil {
		if _, known := l.held[g.id]; !known {
			l.reread = true
			signal(l.wake)
		}
		return
	}
	until := time.Time{} // unknown: to be confirmed
	if b := l.beats[g.beat%int64(len(l.beats))]; b.number == g.beat {
		until = b.sent.Add(min(w.ttl, l.life))
	}
	l.grant(w, g.token, until)
}

// grant is granted with mu held.
func (l *line) grant(w *waiter, token uint64, until time.Time) {
	l.held[w.id] = true
	l.end(w, outcome{token: token, until: until})
}

// lost delivers a loss; it reports whether it was that of a ticket held here.
func (l *line) lost(h driver.Hold) (held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waiters[h.ID]; w != nil {
		l.end(w, outcome{err: driver.ErrLost})
		return false
	}
	_, held = l.held[h.ID]
	return held
}

// look returns the names that are due to be looked at, at most most of them.
func (l *line) look(now time.Time, most int) (names []string, process int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.watched {
		if !n.due.After(now) && len(names) < most {
			names = append(names, name)
		}
	}
	return names, l.process
}

// again says when to look at a name again.
func (l *line) again(name string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.watched[name]; n != nil {
		n.due = at
	}
}

// row is a ticket of this process as the database has it.
type row struct {
	id, name string
	token    uint64
	held     bool
	left     time.Duration // of its lease, counted from when it was asked
}

// compare sets the books right by what the database said when it was asked.
// With all, the rows are all that it has of one incarnation. It returns the
// tickets that nobody here waits for or holds.
func (l *line) compare(rows []row, process int64, asked time.Time, all bool) (orphans []row, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := make(map[string]struct{}, len(rows))
	for _, r := range rows {
		there[r.id] = struct{}{}
		w, held := l.waiters[r.id], false
		if w == nil {
			_, held = l.held[r.id]
		}
		switch {
		case w == nil && !held:
			orphans = append(orphans, r)
		case w != nil && r.held:
			l.grant(w, r.token, asked.Add(r.left))
			news = true
		}
	}
	if !all {
		return orphans, news
	}
	for id, w := range l.waiters {
		if _, ok := there[id]; !ok && w.process == process && !w.joined.IsZero() && w.joined.Before(asked) {
			l.end(w, outcome{err: driver.ErrLost})
		}
	}
	return orphans, news
}

// missed says that news may have been missed.
func (l *line) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiters) > 0 {
		l.reread = true
		signal(l.wake)
	}
}

// wantsReread reports, once, whether news may have been missed.
func (l *line) wantsReread() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	wants := l.reread && l.registered
	l.reread = l.reread && !wants
	return wants
}
