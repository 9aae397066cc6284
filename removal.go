package locker

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Times of a removal.
const (
	tryBound   = time.Second            // one request for a release
	retryFirst = 20 * time.Millisecond  // between two tries, doubled each time
	retryMost  = 250 * time.Millisecond // the same, at the most
)

// A request for a ticket that was given up may still be on its way to the store,
// so a ticket that is not there is looked for again, this long after each
// other look.
var orphanLooks = [...]time.Duration{3 * time.Second, 7 * time.Second, 20 * time.Second}

// removals are the tickets that nobody wants any more and that the store may
// still have: released without an answer, given up while they were asked for,
// or over by the clock on a store that keeps them longer. Each stays here, and is
// released in the background, until the store has confirmed that it is gone.
//
// While the store does not answer, one ticket at a time is tried. With the first
// answer the others follow.
type removals struct {
	*core

	mu       sync.Mutex
	tickets  removalHeap // those that wait to be tried
	trying   int         // requests under way
	failing  bool        // the last request was not answered
	delay    time.Duration
	notUntil time.Time     // while failing: no try before
	running  bool          // there is a goroutine
	closing  bool          // the last tries: everything is due
	empty    chan struct{} // while closing: closed when nothing is left
	group    sync.WaitGroup
	wake     chan struct{}
}

// removal is one ticket.
type removal struct {
	hold       driver.Hold
	due        time.Time
	unanswered bool          // a release was sent and not answered
	looks      int           // how often to look again when it is not there
	keep       bool          // held back until due (WithMinHold): Close leaves it to its lease
	answered   chan struct{} // closed by the first answer
}

func newRemovals(c *core) *removals {
	return &removals{core: c, wake: make(chan struct{}, 1)}
}

// release asks the store to remove a ticket, again until it has answered or
// until has come, whether or not ctx is alive. Without an answer the ticket stays
// in the book.
func (m *removals) release(ctx context.Context, h driver.Hold, until time.Time) error {
	unanswered := false
	var last error // that says more than the end of a context
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		b := &bounded{Context: ctx, until: time.Now().Add(tryBound)}
		if until.Before(b.until) {
			b.until = until
		}
		answered, err := m.ask(b, h, unanswered)
		b.close()
		if answered {
			return err
		}
		unanswered = true
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		if left := time.Until(until); left <= 0 || !sleep(m.tasks.all, min(delay, left)) {
			m.add(removal{hold: h, unanswered: true})
			return last
		}
	}
}

// ask sends one request, and reports whether the store has answered.
func (m *removals) ask(ctx context.Context, h driver.Hold, unanswered bool) (answered bool, err error) {
	err = m.d.Release(ctx, h)
	switch {
	case err == nil, errors.Is(err, driver.ErrClosed):
		return true, err
	case !errors.Is(err, driver.ErrLost):
		return false, err
	case unanswered: // the request before has done it
		return true, nil
	}
	return true, err
}

// orphan adds a ticket whose Acquire has failed and may have left it, and waits
// briefly for the store to confirm that it is gone.
func (m *removals) orphan(h driver.Hold, wait time.Duration) {
	answered := make(chan struct{})
	m.add(removal{hold: h, looks: len(orphanLooks), answered: answered})
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-answered:
	case <-t.C:
	}
}

// add puts a ticket into the book.
func (m *removals) add(r removal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heap.Push(&m.tickets, &r)
	if m.running {
		m.look()
		return
	}
	m.running = true
	m.group.Go(m.work)
}

// look wakes the goroutine.
func (m *removals) look() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// work is the goroutine: it tries what is due, and ends when nothing is left.
func (m *removals) work() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.wake:
		case <-m.tasks.all.Done():
			m.abandon()
			return
		}
		next, more := m.start()
		if !more {
			return
		}
		timer.Reset(next)
	}
}

// start begins what is due and says when something else is.
func (m *removals) start() (next time.Duration, more bool) {
	const idle = time.Hour
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.now()
	for len(m.tickets) > 0 && m.trying < m.atOnce() {
		first := m.tickets[0].due
		if m.failing && m.notUntil.After(first) {
			first = m.notUntil
		}
		if wait := first.Sub(now); wait > 0 && (m.failing || !m.closing) {
			return wait, true
		}
		r := heap.Pop(&m.tickets).(*removal)
		if r.keep && m.closing {
			continue
		}
		m.trying++
		m.group.Go(func() { m.try(r) })
	}
	if m.trying == 0 && len(m.tickets) == 0 {
		m.running = false
		if m.empty != nil {
			close(m.empty)
			m.empty = nil
		}
		return 0, false
	}
	return idle, true // until a try has ended
}

// atOnce is how many requests may be under way. With mu held.
func (m *removals) atOnce() int {
	const most, closing = 16, 64
	switch {
	case m.failing:
		return 1
	case m.closing:
		return closing
	default:
		return most
	}
}

// try asks for one ticket.
func (m *removals) try(r *removal) {
	ctx, cancel := context.WithTimeout(m.tasks.all, tryBound)
	defer cancel()
	answered, err := m.ask(ctx, r.hold, r.unanswered)
	if answered && r.answered != nil {
		close(r.answered)
		r.answered = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trying--
	m.look()
	if !answered {
		r.unanswered = true
		m.backOff()
		r.due = m.notUntil
		heap.Push(&m.tickets, r)
		return
	}
	m.failing, m.delay = false, 0
	gone := err == nil && !r.unanswered
	if r.looks > 0 && !gone && !m.closing {
		r.due = m.clock.now().Add(orphanLooks[len(orphanLooks)-r.looks])
		r.looks--
		r.unanswered = false
		heap.Push(&m.tickets, r)
	}
}

// backOff puts the next try off. With mu held.
func (m *removals) backOff() {
	m.failing = true
	m.delay = min(max(2*m.delay, retryFirst), retryMost)
	spread := time.Duration(rand.Int64N(int64(m.delay)/4 + 1)) //nolint:gosec // not a secret
	m.notUntil = m.clock.now().Add(m.delay - spread)
}

// hurry makes everything due: Close has begun.
func (m *removals) hurry() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing, m.notUntil = true, time.Time{}
	m.look()
}

// drain waits until the store has confirmed all that is in the book, or until
// the time has come. Nothing may be added any more.
func (m *removals) drain(until time.Time) {
	m.mu.Lock()
	if !m.running {
		m.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	m.empty = empty
	m.mu.Unlock()
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
	}
}

// abandon forgets what is left when the Client has been closed.
func (m *removals) abandon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets, m.running = nil, false
}

// sleep waits for d; it reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// removalHeap orders tickets by when they are due.
type removalHeap []*removal

func (h removalHeap) Len() int           { return len(h) }
func (h removalHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h removalHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *removalHeap) Push(x any)        { *h = append(*h, x.(*removal)) }

func (h *removalHeap) Pop() any {
	old := *h
	n := len(old) - 1
	r := old[n]
	old[n] = nil
	*h = old[:n]
	return r
}
