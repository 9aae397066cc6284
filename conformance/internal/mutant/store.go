package mutant

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Liveness is how long a waiter may be silent before its ticket is dropped.
const Liveness = 3 * time.Second

// Store is the server.
type Store struct {
	bug Bug

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when up, paused or a link changes
	up      bool
	paused  bool

	queues     map[string]*queue
	tokens     map[string]uint64 // by name, for the bugs; the rule needs one counter
	idleAt     map[string]time.Time
	left       map[string]bool    // names of which something stays, for the bugs
	lapsed     map[string]*ticket // by ID: expired tickets of which something stays, for the bugs
	last       uint64
	exclusives int // exclusive requests
	clients    []*Driver
	stalls     stalls
}

// New returns a store with a bug.
func New(bug Bug) *Store {
	return &Store{
		bug: bug, up: true, changed: make(chan struct{}),
		queues: make(map[string]*queue), tokens: make(map[string]uint64), idleAt: make(map[string]time.Time),
		lapsed: make(map[string]*ticket), left: make(map[string]bool),
	}
}

type queue struct {
	s       *Store
	name    string
	tickets []*ticket
	timer   *time.Timer
	pollAt  time.Time // for the bugs that grant late
	free    time.Time
	stuck   bool // until the next release, for the bugs that grant too few
	used    bool
	asked   map[*Driver]time.Time // when it first asked, for ObservedAlone
}

type ticket struct {
	d       *Driver
	r       driver.Request
	token   uint64
	held    bool
	acked   bool      // the holder has acknowledged its grant
	asked   time.Time // by its own clock, before the request that began the lease
	since   time.Time
	until   time.Time // of the lease
	queued  time.Time
	touched time.Time // last sign of life of a waiter
	done    chan struct{}
}

func (s *Store) has(b Bug) bool { return s.bug == b }

// change wakes all requests that wait for a connection. With mu held.
func (s *Store) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Kill ends the server. What it holds is kept.
func (s *Store) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = false
	s.mark()
	s.change()
}

// Start starts it again.
func (s *Store) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = true
	if s.has(StartsEmpty) {
		clear(s.queues)
	}
	if s.has(TokensOnRestart) {
		s.last = 0
	}
	if s.has(TokensFromQueue) {
		s.last = 0
	}
	for _, q := range s.queues {
		if s.has(ForgetsWaiters) {
			q.tickets = slices.DeleteFunc(q.tickets, func(t *ticket) bool { return !t.held })
		}
		for _, t := range q.tickets {
			t.touched = time.Now()
			if s.has(RestartedNotes) {
				t.r.Note = ""
			}
			if s.has(TokensFromQueue) {
				s.last = max(s.last, t.token)
			}
		}
	}
	s.change()
}

// Pause stops the server, which then answers nothing.
func (s *Store) Pause() { s.setPaused(true) }

// Resume undoes Pause.
func (s *Store) Resume() { s.setPaused(false) }

func (s *Store) setPaused(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = on
	if !on {
		for _, q := range s.queues {
			for _, t := range q.tickets {
				t.touched = time.Now()
			}
			q.settle()
		}
	} else {
		s.mark()
	}
	s.change()
}

// mark notes that all clients were cut off, for NeverReconnects.
func (s *Store) mark() {
	for _, d := range s.clients {
		d.wasCut = true
	}
}

// Keys counts what the store holds.
func (s *Store) Keys(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.left)
	for _, q := range s.queues {
		q.settle()
	}
	for _, q := range s.queues {
		n += 1 + len(q.tickets)
	}
	if s.has(KeysStay) {
		n += len(s.idleAt)
	}
	if s.has(LapsedKeysStay) || s.has(DeadKeysStay) {
		n += len(s.lapsed)
	}
	return n, nil
}

// key is the queue of a name; with a bug, several names have one.
func (s *Store) key(name string) string {
	cut := func(sep string) string { k, _, _ := strings.Cut(name, sep); return k }
	switch s.bug {
	case FoldsCase:
		return strings.ToLower(name)
	case TrimsBlanks:
		return strings.TrimRight(name, " ")
	case CutsAtSlash:
		return cut("/")
	case CutsAtNUL:
		return cut("\x00")
	case CutsNames:
		return name[:min(len(name), 255)]
	case FoldsAccents:
		return strings.ReplaceAll(name, "e\u0301", "é")
	case HashTags:
		if _, rest, ok := strings.Cut(name, "{"); ok {
			if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
				return tag
			}
		}
	}
	return name
}

// id is what identifies a ticket.
func (s *Store) id(id string) string {
	if s.has(CutsIDs) {
		return id[:min(len(id), 32)]
	}
	return id
}

var errName = errors.New("mutant: no such name is possible")

func (s *Store) queue(name string) (*queue, error) {
	if s.has(RefusesNUL) && strings.Contains(name, "\x00") || s.has(RefusesLong) && len(name) > 255 {
		return nil, errName
	}
	key := s.key(name)
	q := s.queues[key]
	if q == nil {
		q = &queue{s: s, name: key}
		s.queues[key] = q
	}
	q.settle()
	s.queues[key] = q // settle may have forgotten it
	return q, nil
}

// number numbers a ticket.
func (s *Store) number(q *queue, t *ticket) uint64 {
	counter := &s.last
	switch {
	case s.has(TokensAlike):
		return 7
	case s.has(TokensShared) && t.r.Shared:
		if len(q.tickets) > 0 {
			return q.tickets[0].token
		}
	case s.has(TokensAtOnce) && t.r.Shared:
		for _, o := range q.tickets {
			if o.d == t.d && o.r.Shared && o.queued.Equal(t.queued) {
				return o.token
			}
		}
	case s.has(TokensPerProcess):
		counter = &t.d.tokens
	case s.has(TokensRestart):
		if at, ok := s.idleAt[q.name]; ok && time.Since(at) >= time.Second {
			s.tokens[q.name] = 0
		}
		s.tokens[q.name]++
		return s.tokens[q.name]
	}
	*counter++
	return *counter
}

// settle drops expired tickets, grants the tickets that the rule allows then, and
// sets the timer for the next change. With mu held.
func (q *queue) settle() {
	if q.s.paused || !q.s.up {
		return
	}
	now := time.Now()
	q.expire(now)
	q.grant(now)
	q.arm(now)
	if len(q.tickets) == 0 && q.s.queues[q.name] == q {
		delete(q.s.queues, q.name)
		if q.used {
			q.s.idleAt[q.name] = now
		}
	}
}

func (q *queue) expire(now time.Time) {
	for _, t := range slices.Clone(q.tickets) {
		if over, at := q.over(t); over && !now.Before(at) {
			q.remove(t)
			q.stuck = q.stuck || !t.held && q.s.has(DeadBlock)
			q.s.lapse(t)
			if t.held && q.s.has(TokensBackOnExpiry) {
				q.s.last = t.token - 1
			}
		}
	}
}

// lapse keeps an expired ticket, for the bugs that do.
func (s *Store) lapse(t *ticket) {
	keeps := s.has(LapsedRevives) || s.has(LapsedRevivesIf) || s.has(LapsedKeysStay) || s.has(ListsLapsed)
	if t.held && keeps || !t.held && s.has(DeadKeysStay) {
		s.lapsed[t.r.ID] = t
	}
}

// over returns whether a ticket expires, and when.
func (q *queue) over(t *ticket) (bool, time.Time) {
	s := q.s
	if t.held {
		if s.has(ExpiresLate) {
			return true, t.until.Add(3 * time.Second)
		}
		if s.has(ObservedAlone) {
			return q.observed(t)
		}
		return !s.has(NeverExpires) && !(s.has(DeadStay) && !t.acked), t.until
	}
	switch {
	case s.has(DeadStay), s.has(DeadOneByOne), s.has(DeadReaders) && t.r.Shared, s.has(PatientStay) && t.touched.After(t.queued):
		return false, time.Time{}
	case s.has(WaitersDropped):
		return true, t.queued.Add(Liveness)
	}
	return true, t.touched.Add(Liveness)
}

// observed returns over for ObservedAlone.
func (q *queue) observed(t *ticket) (over bool, at time.Time) {
	for d, since := range q.asked {
		if end := since.Add(t.r.TTL); !d.closed && d != t.d && (!over || end.Before(at)) {
			over, at = true, end
		}
	}
	if at.Before(t.until) {
		at = t.until
	}
	return over, at
}

func (q *queue) arm(now time.Time) {
	next := q.pollAt
	for _, t := range q.tickets {
		if over, at := q.over(t); over && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if q.free.After(now) && (next.IsZero() || q.free.Before(next)) {
		next = q.free
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	if next.IsZero() {
		return
	}
	q.timer = time.AfterFunc(max(next.Sub(now), time.Microsecond), func() {
		q.s.mu.Lock()
		defer q.s.mu.Unlock()
		if q.s.queues[q.name] == q {
			q.settle()
		}
	})
}

// remove takes a ticket out of the queue.
func (q *queue) remove(t *ticket) {
	q.tickets = slices.DeleteFunc(q.tickets, func(o *ticket) bool { return o == t })
	switch {
	case t.held:
		if q.s.has(TryAfterRelease) {
			q.free = time.Now().Add(50 * time.Millisecond)
		}
	case !q.s.has(ReleaseSilent):
		close(t.done)
	}
}

// find returns the live ticket of a hold.
func (q *queue) find(h driver.Hold) *ticket {
	for _, t := range q.tickets {
		if t.r.ID == q.s.id(h.ID) && (!t.held || time.Now().Before(t.until) || !q.s.has(NeverExpires)) {
			return t
		}
	}
	return nil
}
