package kvqueue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver. A request that waits puts its ticket and reads the
// queue with that. One that does not looks at the queue first, and puts its ticket,
// on condition that it is granted, only if it would be.
func (e *Engine) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	t, err := e.enter(ctx, &r)
	if err != nil {
		return driver.Grant{}, err
	}
	return e.outcome(ctx, t, &r)
}

// enter queues a ticket, or returns that of an earlier call for the same request. It
// tries again while the store says that it cannot serve at the moment, when the queue
// has changed since a request that does not wait has looked, and when the session turns
// out to have ended.
func (e *Engine) enter(ctx context.Context, r *driver.Request) (*ticket, error) {
	const sessions = 3
	ctx, done := e.bind(ctx)
	defer done()
	var last error // of a store that has answered
	for tries, pause := 1, newBackoff(); ; {
		t, err := e.enterOnce(ctx, r)
		switch {
		case err == nil:
			return t, nil
		case ctx.Err() != nil:
			return nil, e.notQueued(ctx, r, cmp.Or(last, err))
		case errors.Is(err, ErrChanged):
			continue
		case errors.Is(err, ErrSessionOver) && tries < sessions:
			tries++
			continue
		case !e.store.Temporary(err):
			return nil, e.notQueued(ctx, r, err)
		}
		last = err
		if !e.pause(ctx, pause.Next()) {
			return nil, e.notQueued(ctx, r, last)
		}
	}
}

// enterOnce tries once.
func (e *Engine) enterOnce(ctx context.Context, r *driver.Request) (*ticket, error) {
	if e.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	length, err := e.store.Class(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := e.store.Agree(ctx, true); err != nil {
		return nil, err
	}
	if t, err := e.known(ctx, r); t != nil || err != nil {
		return t, err
	}
	return e.put(ctx, r, kind{length, r.MinHold > 0})
}

// notQueued is the error of an Acquire that has no ticket that is known to be queued.
func (e *Engine) notQueued(ctx context.Context, r *driver.Request, err error) error {
	e.mu.Lock()
	t := e.tickets[r.ID]
	e.mu.Unlock()
	if t == nil && errors.Is(err, driver.ErrNotAcquired) {
		return err
	}
	err = e.failed(ctx, err)
	if t == nil {
		err = driver.NoTicket(err)
	}
	return err
}

// known returns the ticket of a request that is asked again. One whose outcome is not
// known, or that must not wait, is removed first.
func (e *Engine) known(ctx context.Context, r *driver.Request) (*ticket, error) {
	e.mu.Lock()
	t := e.find(driver.Hold{Name: r.Name, ID: r.ID})
	e.mu.Unlock()
	if t == nil {
		return nil, nil
	}
	if err := e.awaitPut(ctx, t, false); err != nil {
		return nil, err
	}
	e.mu.Lock()
	if t.state == leaving && !t.deleting && r.Wait {
		e.wait(t) // its first caller had given up, and the queue was not followed since
		t.queue.watcher.reread()
	}
	s := t.state
	e.mu.Unlock()
	if s == held || s == waiting && r.Wait {
		return t, nil
	}
	err := e.remove(ctx, t)
	switch {
	case err != nil && !errors.Is(err, driver.ErrLost):
		return nil, err
	case s == waiting || s == leaving && !r.Wait:
		return nil, driver.ErrNotAcquired
	}
	return nil, nil
}

// put puts a ticket.
func (e *Engine) put(ctx context.Context, r *driver.Request, k kind) (*ticket, error) {
	since := time.Now()
	p := &Put{Request: r, Class: k.length}
	if !r.Wait {
		var err error
		if p.If, err = e.store.Look(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.Renewed && r.MinHold == 0 {
		since = since.Add(-k.length / freshPart)
	}
	s, err := e.attach(ctx, k, since)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	e.mu.Lock()
	t := e.enroll(r, s, stop)
	p.Ticket, p.Brief = t.Ticket, t.willWait(r)
	e.mu.Unlock()
	placed, err := e.store.Put(ctx, p)
	return t, e.placed(t, p, &placed, err)
}

// willWait reports whether a ticket that is put will surely wait, in a queue that is
// known to be long. With mu held.
func (t *ticket) willWait(r *driver.Request) bool {
	w := t.queue.watcher
	if !r.Wait || w == nil || len(w.view.entries) <= w.q.e.opts.LongQueue {
		return false
	}
	for _, other := range t.queue.waiters {
		if !other.Shared || !t.Shared {
			return true
		}
	}
	return false
}

// placed takes the answer to a put.
func (e *Engine) placed(t *ticket, asked *Put, p *Placed, err error) error {
	e.mu.Lock()
	defer e.unlock()
	switch {
	case err == nil:
	case isRefused(err):
		if errors.Is(err, ErrSessionOver) && !t.session.over {
			e.sessionOver(t.session)
		}
		e.forget(t)
		return err
	default: // it may be there, or may yet come
		t.settle(orphan)
		e.retire(t.session)
		if t.released {
			err = errReleased
		}
		return err
	}
	t.Number, t.Version = p.Number, p.Version
	t.settle(leaving) // nobody waits for it yet
	switch {
	case p.Granted:
		e.granted(t)
	case asked.If != nil: // somebody has queued who does not keep to conditions
		return ErrChanged
	default:
		e.wait(t)
	}
	if w := t.queue.watcher; w != nil {
		w.place(t.Entry, p)
	}
	return nil
}

// outcome waits for the grant of a ticket, unless it has been granted at once.
func (e *Engine) outcome(ctx context.Context, t *ticket, r *driver.Request) (driver.Grant, error) {
	e.mu.Lock()
	ended := t.ended
	waits, queued := t.state == waiting, t.state == waiting || t.waited
	if waits {
		t.callers++
	}
	e.mu.Unlock()
	if queued && r.Joined != nil { // also if it has been granted since
		r.Joined()
	}
	if waits {
		select {
		case <-ended:
		case <-ctx.Done():
			e.giveUp(t)
			return driver.Grant{}, e.stopped(ctx)
		case <-e.ctx.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
	return e.grant(ctx, t, r)
}

// giveUp notes that a caller waits for a ticket no longer. One for which nobody waits
// keeps no session alive.
func (e *Engine) giveUp(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.callers--; t.callers == 0 && t.state == waiting {
		e.unwait(t)
		t.state = leaving
	}
}

// grant is the grant of a ticket that is held, or ErrLost. The lease counts from the
// last keep-alive of its session or, where that lasts for longer, from later. For one
// that nobody renews, and for a minimum hold, it is sent after the grant.
func (e *Engine) grant(ctx context.Context, t *ticket, r *driver.Request) (driver.Grant, error) {
	e.mu.Lock()
	now := time.Now()
	since := now.Add(-t.session.ttl / keepPart)
	if !r.Renewed && t.waited || t.stays > 0 {
		since = t.since
	}
	e.mu.Unlock()
	if err := e.ensure(ctx, t, since); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		t.stays = 0 // nobody has been told of the grant, so that Close does not keep it
		return driver.Grant{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.state != held {
		return driver.Grant{}, errDeleted
	}
	g := driver.Grant{Token: t.Number, Asked: t.session.sent}
	if spare := t.session.ttl - r.TTL; spare < 0 {
		g.TTL = t.session.ttl
	} else if g.Asked = g.Asked.Add(spare / 2); g.Asked.After(now) { // half of it for a release that is late
		g.Asked = now
	}
	if !r.Renewed {
		t.until = g.Asked.Add(r.TTL)
	}
	return g, nil
}
