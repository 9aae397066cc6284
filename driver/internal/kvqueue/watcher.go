package kvqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// linger is how long a queue is watched after the last waiter has left.
const linger = 2 * time.Second

// mostRecheck is the longest time between two readings of a queue without news.
const mostRecheck = time.Minute

// errNoNews ends a watch that has reported nothing for long.
var errNoNews = errors.New("no news")

// watcher follows a queue in which tickets of this driver wait, in a goroutine of its
// own. Engine.mu guards it.
//
// It does one thing at a time: it reads the queue, watches it, or rests. A change of
// anything that next depends on must be followed by a call of reconsider, which interrupts
// the watcher if it should do something else now.
type watcher struct {
	q    *queue
	view *view
	idle *time.Timer // ends the watcher when nobody has waited for a while

	stale   bool          // the queue has to be read
	news    bool          // the watch has reported something
	recheck time.Duration // how long a watch may have no news before stale is set
	bound   time.Duration // of a read, and of what a watch reads first: longer if the store is slow
	local   Entry         // a ticket of this driver that was not watched for LocalWait: now it may be

	doing     task
	aim       Entry              // what is being watched
	interrupt context.CancelFunc // ends what the watcher is doing
}

// task is what a watcher does.
type task uint8

const (
	resting task = iota // nobody waits, or it waits for a ticket of this driver
	reading
	watching
	handling // it handles an event of a watch, and then calls next itself
	ending
)

func newWatcher(q *queue) *watcher {
	w := &watcher{q: q, view: newView(), recheck: q.e.opts.Recheck, bound: tryBound, interrupt: func() {}}
	w.idle = time.AfterFunc(linger, w.retire)
	return w
}

// retire ends the watcher if nobody waits.
func (w *watcher) retire() {
	q := w.q
	q.e.mu.Lock()
	defer q.e.mu.Unlock()
	if len(q.waiters) == 0 && q.watcher == w {
		q.watcher = nil
		q.close()
		w.interrupt()
	}
}

// run is the watcher's goroutine.
func (w *watcher) run() {
	e := w.q.e
	defer w.idle.Stop()
	for pause := newBackoff(); ; {
		ctx, cancel := context.WithCancel(e.ctx)
		err := w.step(ctx, cancel)
		interrupted := ctx.Err() != nil
		cancel()
		switch {
		case w.over():
			return
		case err == nil || interrupted:
			pause.Reset()
			continue
		}
		w.failed(err)
		if !e.pause(e.ctx, pause.Next()) {
			return
		}
	}
}

// step does what next decides.
func (w *watcher) step(ctx context.Context, interrupt context.CancelFunc) error {
	e := w.q.e
	e.mu.Lock()
	w.doing, w.aim = w.next()
	w.news = false
	w.interrupt = interrupt
	what := Watching{Name: w.q.name, Aim: w.aim, Complete: w.view.complete, Bound: w.bound}
	pause := linger
	if len(w.q.waiters) > 0 {
		pause = e.opts.LocalWait
	}
	recheck := w.recheck - w.recheck/8 + rand.N(w.recheck/4) //nolint:gosec // so that many queues are not read at once
	local := w.doing == resting && len(w.q.waiters) > 0
	e.mu.Unlock()
	switch w.doing {
	case reading:
		return w.read(ctx)
	case watching:
		return w.watch(ctx, what, recheck)
	default:
		if e.pause(ctx, pause) && local {
			e.mu.Lock()
			w.local = what.Aim
			e.mu.Unlock()
		}
		return nil
	}
}

// next decides what to do. With mu held.
func (w *watcher) next() (task, Entry) {
	q := w.q
	if q.watcher != w {
		return ending, Entry{}
	}
	if len(q.waiters) == 0 {
		return resting, Entry{}
	}
	first := q.waiters[0]
	if w.stale || first.Number > w.view.complete {
		return reading, Entry{}
	}
	ahead, anyOf := w.view.blockers(first.Entry, len(q.waiters) > 1)
	if len(ahead) == 0 {
		return reading, Entry{} // the waiter's own entry has gone
	}
	last := ahead[len(ahead)-1]
	wanted := ahead[len(ahead)-1:]
	if anyOf {
		wanted = ahead
	}
	foreign := func(e Entry) bool { return q.e.keys[e.Key] == nil }
	if q.e.opts.LocalWait > 0 && last != w.local && !slices.ContainsFunc(wanted, foreign) {
		return resting, last
	}
	if anyOf || len(ahead) <= q.e.opts.NearHead {
		return watching, Entry{}
	}
	return watching, last
}

// reconsider is called when something that next depends on may have changed. With mu held.
func (w *watcher) reconsider() {
	if w.doing == reading || w.doing == handling || w.doing == watching && len(w.q.waiters) == 0 {
		return
	}
	if do, aim := w.next(); do != w.doing || aim.Key != w.aim.Key {
		w.interrupt()
	} else {
		w.aim = aim // the same key, perhaps of another ticket
	}
}

// over reports whether the watcher was retired, or the engine closed.
func (w *watcher) over() bool {
	w.q.e.mu.Lock()
	defer w.q.e.mu.Unlock()
	return w.q.watcher != w || w.q.e.closed
}

// failed has the queue read again after the store has not answered.
func (w *watcher) failed(err error) {
	w.q.e.mu.Lock()
	defer w.q.e.mu.Unlock()
	w.q.e.answered(err)
	w.stale = true
	w.bound = min(2*w.bound, requestBound) // it may be slow
}

// watch watches until it is interrupted, or there was no news for long.
func (w *watcher) watch(ctx context.Context, what Watching, recheck time.Duration) error {
	e := w.q.e
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(recheck, func() { cancel(errNoNews) })
	defer quiet.Stop()
	err := e.store.Watch(ctx, what, func(ev Event) {
		quiet.Reset(recheck)
		w.handle(ctx, ev)
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	switch cause := context.Cause(ctx); {
	case cause == nil:
		w.stale = w.stale || err == nil && !w.news
	case errors.Is(cause, errNoNews):
		w.stale, err = true, nil
		w.recheck = min(2*w.recheck, max(mostRecheck, e.opts.Recheck))
	}
	return err
}

// handle handles an event of a watch.
func (w *watcher) handle(ctx context.Context, ev Event) {
	e := w.q.e
	e.mu.Lock()
	defer e.unlock()
	e.answered(nil)
	w.doing, w.news = handling, true
	aimed := w.view.has(w.aim) // at one entry, not at the queue
	for _, g := range ev.Gone {
		w.q.removed(g)
	}
	if ev.Queue != nil {
		w.learn(*ev.Queue, time.Time{})
	}
	if aimed && !w.view.has(w.aim) && len(w.q.waiters) > 0 {
		w.stale = true // others ahead may have gone, too, or the waiter's own entry, by hand
	} else if !w.stale {
		w.grant(w.grantable())
	}
	for {
		if do, _ := w.next(); do != reading || ctx.Err() != nil {
			w.doing = watching
			w.reconsider()
			return
		}
		e.unlock()
		err := w.read(ctx)
		e.mu.Lock()
		if err != nil {
			w.interrupt()
		}
	}
}

// read reads the queue.
func (w *watcher) read(ctx context.Context) error {
	e := w.q.e
	e.mu.Lock()
	known := w.view.complete
	if n := len(w.q.waiters); n > 0 {
		known = max(known, w.q.waiters[n-1].Number)
	}
	w.stale = false
	ready := w.grantable() // but their entries may have been removed by hand
	bound, begun := w.bound, time.Now()
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	s, err := e.store.Read(ctx, w.q.name)
	e.mu.Lock()
	defer e.unlock()
	if err != nil {
		w.stale = true
		return err
	}
	e.answered(nil)
	w.bound = min(max(tryBound, 2*time.Since(begun)), requestBound)
	if s.Complete >= known {
		begun = time.Time{}
	}
	w.learn(s, begun)
	w.grant(slices.DeleteFunc(w.grantable(), func(t *ticket) bool { return w.stale && !slices.Contains(ready, t) }))
	return nil
}

// learn takes in a snapshot. A waiter that it should show, and does not, is lost. If a
// reading shows that the store has lost its past, restored is when that reading began,
// and it should show all waiters that were queued before; otherwise restored is zero.
// With mu held; losses are reported by unlock.
func (w *watcher) learn(s Snapshot, restored time.Time) {
	if !restored.IsZero() {
		w.view.reset()
	}
	w.view.merge(s)
	for i := len(w.q.waiters) - 1; i >= 0; i-- {
		t := w.q.waiters[i]
		if (t.Number <= s.Complete || !t.since.After(restored)) && !w.view.has(t.Entry) {
			w.q.e.lose(t, errDeleted)
		}
	}
}

// place takes in a ticket that was put, and the queue as it was then. If the ticket ahead has
// gone since, or the ticket itself, or the store has lost its past, the queue is read. With mu
// held.
func (w *watcher) place(t Entry, p *Placed) {
	if p.Queue != nil {
		w.view.merge(*p.Queue)
	}
	if t.Number <= w.view.complete && !w.view.has(t) || len(w.grantable()) > 0 {
		w.stale = true
	}
	w.reconsider()
}

// handOver is called when this driver has removed an entry. It grants the lock to next, which may
// be nil: its entry was there then, and behind no other. If others are granted, the queue is read:
// the view may show an entry that was removed by hand. With mu held.
func (q *queue) handOver(next *ticket) {
	w := q.watcher
	if w == nil {
		return
	}
	for _, t := range w.grantable() {
		if t == next {
			w.grant([]*ticket{t})
		} else {
			w.stale = true
		}
	}
	w.reconsider()
}

// grantable returns the waiters that the view grants. With mu held.
func (w *watcher) grantable() (ts []*ticket) {
	q := w.q
	if len(q.waiters) == 0 {
		return nil
	}
	limit := func(e Entry) int {
		if i, ok := q.position(e.Number); ok {
			return q.waiters[i].Limit
		}
		return 0
	}
	for _, number := range w.view.granted(limit) {
		if i, ok := q.position(number); ok { // else held already, or of another driver
			ts = append(ts, q.waiters[i])
		}
	}
	return ts
}

// grant grants the lock to waiters whose entries are there. With mu held.
func (w *watcher) grant(ts []*ticket) {
	for _, t := range ts {
		w.q.e.granted(t)
	}
	w.reconsider()
}

// recheck has all queues with waiters read. With mu held.
func (e *Engine) recheck() {
	for _, q := range e.queues {
		if w := q.watcher; w != nil {
			w.stale = true // also where nobody waits: the store may have lost its past
			w.reconsider()
		}
	}
}
