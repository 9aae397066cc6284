package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// tokens counts tickets: one counter for all names of all spaces, so that tokens
// grow for as long as the process lives, whatever is closed and opened again.
var tokens atomic.Uint64

// space is what a server is to the other drivers.
type space struct {
	shared  bool
	clients int // of a shared space; guarded by sharedMu

	mu      sync.Mutex
	lines   map[string]*line
	tickets map[string]*ticket // by ID
	idle    *line              // one spare line, so that a cycle need not allocate
}

func newSpace() *space {
	return &space{lines: make(map[string]*line), tickets: make(map[string]*ticket)}
}

// stop ends the timers of a space that nobody uses any more, and reports
// whether no minimum hold is left.
func (s *space) stop() bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.lines {
		ln.settle(now)
		ln.disarm()
	}
	for _, t := range s.tickets {
		if t.req.MinHold > 0 {
			return false
		}
	}
	return true
}

// ticket is a place in a line.
type ticket struct {
	d     *Driver
	req   driver.Request
	token uint64
	held  bool
	since time.Time
	until time.Time     // end of a holder's lease
	asked time.Time     // when the lease was counted from
	done  chan struct{} // of a waiter: closed when granted or gone
	gone  bool

	prev, next *ticket
}

// queue is a list of tickets in order.
type queue struct {
	first, last *ticket
	n           int
}

func (q *queue) push(t *ticket) {
	t.prev, t.next = q.last, nil
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
	q.n++
}

func (q *queue) remove(t *ticket) {
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	q.n--
}

// line is the line of one name. Its tickets are kept in two lists so that a
// release costs the same whatever the number of those who wait.
type line struct {
	s    *space
	name string

	holders   queue
	waiters   queue
	exclusive int       // tickets in either list
	newest    uint64    // at least the greatest token of a holder
	soonest   time.Time // no holder's lease ends before
	unlimited int       // waiters without a limit
	most      int       // at least the greatest limit of a waiter
	timer     *time.Timer
	timed     bool // there was a timer, which may be about to look at the line
}

// line returns the line of name, making it if need be.
func (s *space) line(name string) *line {
	if ln := s.lines[name]; ln != nil {
		return ln
	}
	ln := s.idle
	if s.idle = nil; ln == nil {
		ln = &line{s: s}
	}
	ln.name = name
	s.lines[name] = ln
	return ln
}

// free is whether a new ticket at the end of the line would be granted: the
// rule of driver.Grantable on what the line counts.
func (ln *line) free(r driver.Request) bool {
	ahead := ln.holders.n + ln.waiters.n
	if !r.Shared {
		return ahead == 0
	}
	return ln.exclusive == 0 && (r.Limit == 0 || ahead < r.Limit)
}

// join puts a new ticket at the end of the line.
func (ln *line) join(d *Driver, r driver.Request, now time.Time) *ticket {
	granted := ln.free(r)
	t := &ticket{d: d, req: r, token: tokens.Add(1), since: now}
	ln.s.tickets[r.ID] = t
	if !r.Shared {
		ln.exclusive++
	}
	if granted {
		ln.hold(t, now)
		return t
	}
	t.done = make(chan struct{})
	ln.waiters.push(t)
	if r.Limit == 0 && r.Shared {
		ln.unlimited++
	}
	ln.most = max(ln.most, r.Limit)
	ln.arm()
	return t
}

// hold grants a ticket that is in neither list.
func (ln *line) hold(t *ticket, now time.Time) {
	t.held, t.since, t.asked, t.until = true, now, now, now.Add(t.req.TTL)
	if ln.holders.n == 0 || t.until.Before(ln.soonest) {
		ln.soonest = t.until
	}
	ln.newest = max(ln.newest, t.token)
	ln.holders.push(t)
}

// drop takes a ticket out of the line for good.
func (ln *line) drop(t *ticket) {
	delete(ln.s.tickets, t.req.ID)
	t.gone = true
	if !t.req.Shared {
		ln.exclusive--
	}
	if t.held {
		ln.holders.remove(t)
		return
	}
	ln.unwait(t)
	close(t.done)
}

// unwait takes a ticket off the waiters.
func (ln *line) unwait(t *ticket) {
	ln.waiters.remove(t)
	if t.req.Limit == 0 && t.req.Shared {
		ln.unlimited--
	}
	if ln.waiters.n == 0 {
		ln.most = 0
	}
}

// settle drops the leases that are over, grants what that lets through, and
// forgets a line that is empty. Every change of a line ends with it.
func (ln *line) settle(now time.Time) {
	if ln.holders.n > 0 && !now.Before(ln.soonest) {
		ln.expire(now)
	}
	if ln.waiters.n > 0 {
		ln.promote(now)
	}
	if ln.holders.n+ln.waiters.n == 0 {
		ln.forget()
		return
	}
	ln.arm()
}

// expire drops the holders whose lease is over.
func (ln *line) expire(now time.Time) {
	ln.soonest = time.Time{}
	for t := ln.holders.first; t != nil; {
		next := t.next
		switch {
		case !now.Before(t.until):
			ln.drop(t)
		case ln.soonest.IsZero() || t.until.Before(ln.soonest):
			ln.soonest = t.until
		}
		t = next
	}
}

// promote grants the waiters whom the rule lets through, in order.
func (ln *line) promote(now time.Time) {
	if ln.holders.n > 0 && !ln.holders.first.req.Shared {
		return
	}
	blocked := 0 // waiters passed over
	for t := ln.waiters.first; t != nil; {
		next := t.next
		ahead := ln.holdersAhead(t) + blocked
		switch {
		case !t.req.Shared:
			if ahead == 0 {
				ln.grant(t, now)
			}
			return // everything behind an exclusive ticket is blocked
		case t.req.Limit == 0 || ahead < t.req.Limit:
			ln.grant(t, now)
		case ln.unlimited == 0 && ahead >= ln.most:
			return
		default:
			blocked++
		}
		t = next
	}
}

// grant makes a waiter a holder.
func (ln *line) grant(t *ticket, now time.Time) {
	ln.unwait(t)
	ln.hold(t, now)
	close(t.done)
}

// holdersAhead counts the holders before a waiter. With mixed limits a later
// ticket may hold while an earlier one waits.
func (ln *line) holdersAhead(t *ticket) int {
	if ln.newest < t.token {
		return ln.holders.n
	}
	n := 0
	for h := ln.holders.first; h != nil; h = h.next {
		if h.token < t.token {
			n++
		}
	}
	return n
}

// arm sets the timer for the end of the first lease, while somebody waits for
// it.
func (ln *line) arm() {
	if ln.waiters.n == 0 || ln.holders.n == 0 {
		ln.disarm()
		return
	}
	wait := time.Until(ln.soonest)
	if ln.timer == nil {
		ln.timed = true
		ln.timer = time.AfterFunc(wait, ln.wake)
	} else {
		ln.timer.Reset(wait)
	}
}

func (ln *line) disarm() {
	if ln.timer != nil {
		ln.timer.Stop()
		ln.timer = nil
	}
}

// wake is the timer's.
func (ln *line) wake() {
	ln.s.mu.Lock()
	defer ln.s.mu.Unlock()
	if ln.s.lines[ln.name] == ln {
		ln.settle(time.Now())
	}
}

// forget gives an empty line up, and keeps it as the spare one.
func (ln *line) forget() {
	s := ln.s
	ln.disarm()
	delete(s.lines, ln.name)
	if !ln.timed {
		*ln = line{s: s}
		s.idle = ln
	}
}
