package consul

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A queue is the waiters of this process for one name. One goroutine looks after
// all of them while there are any: it reads the queue, watches what blocks the
// first of them, and tells each when it is granted.
type queue struct {
	d    *Driver
	name string

	mu      sync.Mutex
	view    view
	waiters []*waiter          // by number
	stale   bool               // the view has to be read again
	err     error              // the last that the store failed with; nil since it answered
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

// end tells the waiter how its wait has ended, once.
func (w *waiter) end(err error) {
	select {
	case w.done <- err:
	default:
	}
}

const (
	// readBound is how long an ordinary read may take.
	readBound = 10 * time.Second
	// localWait is how long a ticket of this same process is not watched: its
	// release is known without.
	localWait = time.Second
)

// blocksLocally tells that a new ticket is blocked whatever else is in the
// queue, by one of this process that waits.
func (d *Driver) blocksLocally(r driver.Request) bool {
	d.mu.Lock()
	q := d.queues[r.Name]
	d.mu.Unlock()
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.waiters, func(w *waiter) bool { return !w.shared || !r.Shared })
}

// enqueue adds a waiter to its queue, with the entries as they were when its
// ticket was created, or nil.
func (d *Driver) enqueue(w *waiter, known []entry) (*queue, error) {
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
	q := d.queues[name]
	if q == nil {
		q = &queue{d: d, name: name}
		d.queues[name] = q
		d.work.Go(q.run)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if known != nil {
		q.view.replace(d.withoutReleased(known), w.number, false)
	}
	q.view.add(queued{number: w.number, modify: w.number, key: w.t.key, shared: w.shared, limit: w.limit})
	i, _ := slices.BinarySearchFunc(q.waiters, w.number, byNumber)
	q.waiters = slices.Insert(q.waiters, i, w)
	if i == 0 {
		q.wake()
	}
	return q, nil
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

// leave takes a waiter out, whose ticket may remain in the store until it is
// released.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drop(w) == 0 {
		q.wake() // another is first, or none is left
	}
}

// drop takes a waiter off the list and returns its index, or -1. With mu held.
func (q *queue) drop(w *waiter) int {
	i, found := slices.BinarySearchFunc(q.waiters, w.number, byNumber)
	if !found || q.waiters[i] != w {
		return -1
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	return i
}

// left tells the waiters of this process that a ticket is gone from the store.
func (d *Driver) left(name string, number uint64) {
	d.mu.Lock()
	q := d.queues[name]
	d.mu.Unlock()
	if q == nil || number == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.view.remove(number)
	q.grant()
	q.wake()
}

// withoutReleased leaves out the tickets of this driver that have gone since the
// queue was read: Driver.left has told of them before, and does not again. With
// mu held, until the queue is in its view.
func (d *Driver) withoutReleased(entries []entry) []entry {
	own := make(map[string]bool, len(d.sessions))
	for s := range d.sessions {
		own[s.id] = true
	}
	return slices.DeleteFunc(entries, func(e entry) bool {
		return own[e.Session] && d.tickets[e.ID] == nil
	})
}

// recheckQueues makes all queues read their state again. With Driver.mu held.
func (d *Driver) recheckQueues() {
	for _, q := range d.queues {
		q.mu.Lock()
		q.stale = true
		q.wake()
		q.mu.Unlock()
	}
}

// wake interrupts what the goroutine waits for. With mu held.
func (q *queue) wake() {
	if q.stop != nil {
		q.stop()
	}
}

// lastError is the store's last error while it does not answer.
func (q *queue) lastError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// grant tells the waiters that the view grants. With mu held.
func (q *queue) grant() {
	q.view.granted(func(number uint64) {
		i, found := slices.BinarySearchFunc(q.waiters, number, byNumber)
		if found {
			q.waiters[i].end(nil)
			q.waiters = slices.Delete(q.waiters, i, i+1)
		}
	})
}

// run looks after the queue until no waiter is left.
func (q *queue) run() {
	var delay time.Duration
	for {
		ctx, cancel := context.WithCancel(q.d.ctx)
		step, ok := q.next(cancel)
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
		q.failed(err)
		sleep(q.d.ctx, delay)
	}
}

// next decides what to do, on the state as it is now; false: nobody waits.
func (q *queue) next(cancel context.CancelFunc) (step func(context.Context) error, ok bool) {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.grant()
	if len(q.waiters) == 0 || q.d.closed {
		delete(q.d.queues, q.name)
		return nil, false
	}
	q.stop = cancel
	first := q.waiters[0]
	if q.stale || first.number > q.view.complete {
		return q.read, true
	}
	t, one := q.view.blocker(first.number)
	if !one || t.shared && q.mayOvertake() {
		index := q.view.complete
		return func(ctx context.Context) error { return q.watchAll(ctx, index) }, true
	}
	local := q.d.isOwn(t.key)
	return func(ctx context.Context) error { return q.watchOne(ctx, t, local) }, true
}

// mayOvertake tells whether a waiter may be granted while the first one is blocked
// by shared tickets only: one with a wider limit than a single permit. With mu
// held.
func (q *queue) mayOvertake() bool {
	return slices.ContainsFunc(q.waiters[1:], func(w *waiter) bool { return w.shared && w.limit != 1 })
}

// failed notes an outage: what happened meanwhile has to be read.
func (q *queue) failed(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
	q.stale = true
}

// watchOne waits until a ticket has gone, or for a while.
func (q *queue) watchOne(ctx context.Context, t queued, local bool) error {
	if local && !sleep(ctx, localWait) {
		return nil
	}
	gone, err := q.d.store.gone(ctx, t)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = nil
	if gone {
		q.view.remove(t.number)
	}
	waiting := len(q.waiters)
	q.grant()
	// No news for long, or there are others ahead, or were.
	q.stale = q.stale || len(q.waiters) == waiting
	return nil
}

// watchAll waits until the queue has changed since index, or for a while.
func (q *queue) watchAll(ctx context.Context, index uint64) error {
	entries, now, err := q.d.store.changed(ctx, q.name, index)
	if err != nil {
		return err
	}
	q.d.mu.Lock()
	entries = q.d.withoutReleased(entries)
	q.mu.Lock()
	q.d.mu.Unlock()
	defer q.mu.Unlock()
	q.err = nil
	if now <= index { // no news, or the past
		q.stale = true
		return nil
	}
	q.view.replace(entries, now, false)
	for _, w := range q.waiters {
		q.stale = q.stale || !q.view.has(w.number) // to be read exactly
	}
	return nil
}

// read reads the queue. Who waited before and is not in it has lost the ticket.
func (q *queue) read(ctx context.Context) error {
	q.mu.Lock()
	before := slices.Clone(q.waiters)
	q.stale = false
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	entries, index, err := q.d.store.queue(ctx, q.name)
	if err != nil {
		q.failed(err) // also when interrupted
		return err
	}
	q.d.mu.Lock()
	entries = q.d.withoutReleased(entries)
	q.mu.Lock()
	q.d.mu.Unlock()
	q.err = nil
	q.view.replace(entries, index, true)
	var lost []*ticket
	for _, w := range before {
		if !q.view.has(w.number) && q.drop(w) >= 0 {
			lost = append(lost, w.t)
		}
	}
	q.mu.Unlock()
	for _, t := range lost {
		q.d.lose(t, errGone)
	}
	return nil
}
