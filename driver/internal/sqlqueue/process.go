package sqlqueue

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// The database has one row for a process that waits, which heartbeats renew. The ID of the process is a random number.
// It changes when the row has been removed or has expired: an expired row is never renewed, so its tickets stay
// expired.

// current returns the present ID.
func (b *book) current() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.process
}

// nextID changes the ID, and returns the one before and whether the database has a row of it. With mu held.
func (b *book) nextID() (before int64, known bool) {
	before, known = b.process, b.registered
	b.process = b.process&^(processIDs-1) | (b.process+1)&(processIDs-1)
	b.registered = false
	b.heartbeats = [8]heartbeat{}
	return before, known
}

// acknowledged records a heartbeat that the database has answered.
func (b *book) acknowledged(process, number int64, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != process {
		return
	}
	b.answered = time.Now()
	if !b.registered {
		b.registered, b.waited, b.since = true, b.answered, b.answered
		if len(b.byName) > 0 { // queued upon a heartbeat that was not answered, whose row may have been removed since
			b.missed = true
			signal(b.changed)
		}
	}
	b.heartbeats[number%int64(len(b.heartbeats))] = heartbeat{number, sent}
	if b.fault != nil {
		b.fault, b.missed = nil, true
	}
}

// setFault records why a heartbeat failed.
func (b *book) setFault(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = err
}

func (b *book) lastFault() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// expired ends the waits of a process that the database reports as expired.
func (b *book) expired(process int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != process {
		return
	}
	b.nextID()
	for _, w := range b.byID {
		if !w.queued.IsZero() {
			b.end(w, outcome{err: driver.ErrLost})
		}
	}
}

// leave gives up the present ID. It reports whether the database has a row of it.
func (b *book) leave() (process int64, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nextID()
}

// heartbeatEvery is the time between two heartbeats.
func (e *Engine) heartbeatEvery() time.Duration { return e.opts.Liveness / 4 }

// bound bounds a request of a process for itself, which has to be done in time: the next one does not wait for one that hangs.
func (e *Engine) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, haste{}, inTime), max(e.heartbeatEvery(), 100*time.Millisecond))
}

// heartbeat shows that a process lives; alive is false if it has expired. It returns the tickets that were granted to
// the process and not renewed since.
func (e *Engine) heartbeat(ctx context.Context, process int64, register bool) (alive bool, granted Mine, err error) {
	h, err := e.store.Heartbeat(ctx, process, e.opts.Liveness, register)
	if err == nil && h.Number > 0 {
		e.book.acknowledged(process, h.Number, h.Sent)
	}
	return h.Number > 0, h.Mine, err
}

// register registers the process in the database, because it was not registered, under the ID then, according to the
// answer to a request that was sent at asked. Another request may have registered it meanwhile.
func (e *Engine) register(ctx context.Context, then int64, asked time.Time) error {
	select {
	case e.registering <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.life.Done():
		return driver.ErrClosed
	}
	defer func() { <-e.registering }()
	e.book.mu.Lock()
	process, registered, answered := e.book.process, e.book.registered, e.book.answered
	e.book.mu.Unlock()
	if registered && (process != then || answered.After(asked)) {
		return nil
	}
	if registered {
		e.book.expired(process)
	}
	err := Do(ctx, e, Twice, func() (err error) {
		for late := true; late && !e.life.Closed(); {
			bound, cancel := e.bound(ctx)
			err = e.showNewProcess(bound)
			late = err != nil && bound.Err() != nil && ctx.Err() == nil
			cancel()
		}
		return err
	})
	if err == nil {
		e.attend()
	}
	return err
}

// showNewProcess is the first heartbeat of a process.
func (e *Engine) showNewProcess(ctx context.Context) error {
	process := e.book.current()
	alive, _, err := e.heartbeat(ctx, process, true)
	if err == nil && !alive { // an earlier try has registered it, and it has expired; others may have queued
		e.book.expired(process)
		_, _, err = e.heartbeat(ctx, e.book.current(), true)
	}
	return err
}
