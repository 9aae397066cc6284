package consul

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A line is the waiters of this process for one name. One goroutine looks after
// all of them while there are any: it reads the line, watches what holds up
// the first of them, and tells each when it is granted.
type line struct {
	d      *Driver
	name   string
	prefix string

	mu      sync.Mutex
	view    view
	waiters []*waiter          // by number
	stale   bool               // the view has to be read again
	behind  bool               // more may have gone than the view knows
	err     error              // the last that the store failed with; nil since it answered
	narrow  bool               // what is watched decides about the first waiter only
	stop    context.CancelFunc // interrupts what the goroutine waits for
}

// A waiter is one Acquire that waits.
type waiter struct {
	t      *ticket
	number uint64
	shared bool
	limit  int
	done   chan error // nil: granted
}

// end tells the waiter its fate; the first word counts.
func (w *waiter) end(err error) {
	select {
	case w.done <- err:
	default:
	}
}

// blocksLocally tells that a new ticket is blocked whatever the rest of the line
// is, because of one of this process that waits.
func (d *Driver) blocksLocally(r driver.Request) bool {
	if !r.Wait {
		return false
	}
	d.mu.Lock()
	l := d.lines[r.Name]
	d.mu.Unlock()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.waiters, func(w *waiter) bool { return !w.shared || !r.Shared })
}

// enqueue adds a waiter to its line, with the line as it was when it joined,
// or nil.
func (d *Driver) enqueue(w *waiter, known []entry) (*line, error) {
	name := w.t.name
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, driver.ErrClosed
	}
	if d.tickets[w.t.id] != w.t {
		return nil, errSessionLost
	}
	w.t.w = w
	l := d.lines[name]
	if l == nil {
		l = &line{d: d, name: name, prefix: d.keys.line(name)}
		d.lines[name] = l
		d.work.Go(l.run)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known != nil {
		l.view.replace(d.withoutGone(known), w.number, false)
	}
	l.view.add(spot{number: w.number, modify: w.number, key: w.t.key, shared: w.shared, limit: w.limit})
	i, _ := slices.BinarySearchFunc(l.waiters, w.number, byNumber)
	l.waiters = slices.Insert(l.waiters, i, w)
	if i == 0 || l.narrow && w.overtakes() {
		l.wake()
	}
	return l, nil
}

func byNumber(w *waiter, number uint64) int {
	switch {
	case w.number < number:
		return -1
	case w.number > number:
		return 1
	}
	return 0
}

// leave takes a waiter out, whose ticket may stand in the store until it is
// released.
func (l *line) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drop(w) == 0 {
		l.wake() // another is first, or none is left
	}
}

// drop takes a waiter off the list and returns where it stood, or -1. With mu
// held.
func (l *line) drop(w *waiter) int {
	i, found := slices.BinarySearchFunc(l.waiters, w.number, byNumber)
	if !found || l.waiters[i] != w {
		return -1
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	return i
}

// left tells the waiters of this process that a ticket is gone from the store.
func (d *Driver) left(name string, number uint64) {
	d.mu.Lock()
	l := d.lines[name]
	d.mu.Unlock()
	if l == nil || number == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.remove(number)
	l.dispatch()
	l.wake()
}

// withoutGone leaves out the tickets of this driver that have gone since the
// queue was read: Driver.left has told of them before, and does not again. With
// mu held, until the queue is in its view.
func (d *Driver) withoutGone(line []entry) []entry {
	own := make(map[string]bool, len(d.sessions))
	for s := range d.sessions {
		own[s.id] = true
	}
	return slices.DeleteFunc(line, func(e entry) bool {
		return own[e.Session] && d.tickets[e.ID] == nil
	})
}

// recheckLines makes all lines read their state again. With Driver.mu held.
func (d *Driver) recheckLines() {
	for _, l := range d.lines {
		l.mu.Lock()
		l.stale = true
		l.wake()
		l.mu.Unlock()
	}
}

// wake interrupts what the goroutine waits for. With mu held.
func (l *line) wake() {
	if l.stop != nil {
		l.stop()
	}
}

// trouble is the store's last error while it does not answer.
func (l *line) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// dispatch tells the waiters that the view grants. With mu held.
func (l *line) dispatch() {
	widest := 1
	for _, w := range l.waiters {
		if !w.shared {
			break // those behind it are blocked
		}
		if w.limit == 0 {
			widest = 0
			break
		}
		widest = max(widest, w.limit)
	}
	l.view.granted(widest, func(number uint64) {
		i, found := slices.BinarySearchFunc(l.waiters, number, byNumber)
		if found {
			l.waiters[i].end(nil)
			l.waiters = slices.Delete(l.waiters, i, i+1)
		}
	})
}

// run looks after the line until no waiter is left.
func (l *line) run() {
	var delay time.Duration
	for {
		ctx, cancel := context.WithCancel(l.d.ctx)
		step, ok := l.next(cancel)
		if !ok {
			cancel()
			return
		}
		err := step(ctx)
		interrupted := ctx.Err() != nil
		cancel()
		if err == nil || interrupted {
			delay = 0
			continue
		}
		delay = backoff(delay)
		l.failed(err)
		sleep(l.d.ctx, delay)
	}
}

// next decides what to do, on the state as it is now; false: nobody waits.
func (l *line) next(cancel context.CancelFunc) (step func(context.Context) error, ok bool) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatch()
	if len(l.waiters) == 0 || l.d.closed {
		delete(l.d.lines, l.name)
		return nil, false
	}
	l.stop, l.narrow = cancel, false
	first := l.waiters[0]
	if l.stale || first.number > l.view.complete {
		return l.read, true
	}
	if l.behind {
		return l.prune, true
	}
	t := l.view.blocker(first.number)
	if t.whole || t.shared && l.mayOvertake() {
		index := l.view.complete
		return func(ctx context.Context) error { return l.watchAll(ctx, index) }, true
	}
	l.narrow = t.shared
	local := l.d.isOwn(t.key)
	return func(ctx context.Context) error { return l.watchOne(ctx, t.spot, local) }, true
}

// mayOvertake tells whether a waiter may be granted while the first one is held up
// by shared tickets only: one with a wider limit than a single permit. With mu
// held.
func (l *line) mayOvertake() bool {
	return slices.ContainsFunc(l.waiters[1:], (*waiter).overtakes)
}

// overtakes tells whether the waiter may be granted before one that is held up by
// shared tickets only.
func (w *waiter) overtakes() bool { return w.shared && w.limit != 1 }

// failed notes an outage: what happened meanwhile has to be read.
func (l *line) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.stale = true
}

// answered notes that the store has answered. With mu held.
func (l *line) answered() { l.err = nil }

// prune finds out who has gone, which is less to read than the line.
func (l *line) prune(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	keys, index, err := l.d.store.keysBelow(ctx, l.prefix)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered()
	l.behind = false
	l.view.prune(keys, index)
	for _, w := range l.waiters {
		l.stale = l.stale || !l.view.has(w.number) // to be read exactly
	}
	return nil
}

// read reads the whole line. Whoever waited before and does not stand in it has
// lost the ticket.
func (l *line) read(ctx context.Context) error {
	l.mu.Lock()
	before := slices.Clone(l.waiters)
	l.stale, l.behind = false, false
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	pairs, index, err := l.d.store.list(ctx, l.prefix)
	if err != nil {
		l.failed(err) // also when interrupted
		return err
	}
	entries, err := parseLine(pairs)
	if err != nil {
		return err
	}
	l.d.mu.Lock()
	entries = l.d.withoutGone(entries)
	l.mu.Lock()
	l.d.mu.Unlock()
	l.answered()
	l.view.replace(entries, index, true)
	var lost []*ticket
	for _, w := range before {
		if !l.view.has(w.number) && l.drop(w) >= 0 {
			lost = append(lost, w.t)
		}
	}
	l.mu.Unlock()
	for _, t := range lost {
		l.d.lose(t, errGone)
	}
	return nil
}
