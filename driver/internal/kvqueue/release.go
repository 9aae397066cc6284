package kvqueue

import (
	"context"
	"errors"

	"github.com/lockerproject/locker/driver"
)

// Release implements driver.Driver. It ends an Acquire of the same ticket that is under
// way.
func (e *Engine) Release(ctx context.Context, h driver.Hold) error {
	ctx, done := e.bind(ctx)
	defer done()
	t, err := e.stopEntering(ctx, h)
	switch {
	case err != nil:
		return e.failed(ctx, err)
	case t == nil:
		return e.releaseForeign(ctx, h)
	}
	if err := e.remove(ctx, t); err != nil {
		if errors.Is(err, driver.ErrLost) {
			return err
		}
		return e.failed(ctx, err)
	}
	return nil
}

// stopEntering ends a call of Acquire that is in enter for a ticket, and returns the ticket or, if
// this driver does not know it, nil.
func (e *Engine) stopEntering(ctx context.Context, h driver.Hold) (*ticket, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	call := e.entering[h.ID]
	if call == nil || call.name != h.Name {
		return e.find(h), nil
	}
	call.released = true
	call.stop()
	e.mu.Unlock()
	var err error
	select {
	case <-call.over:
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.mu.Lock()
	return e.find(h), err
}

// remove removes a ticket from the store, and forgets it once the store has answered.
func (e *Engine) remove(ctx context.Context, t *ticket) error {
	e.mu.Lock()
	if t.state == gone {
		e.mu.Unlock()
		return driver.ErrLost
	}
	if t.state == waiting {
		e.unqueue(t) // its Acquire waits until the store has confirmed it
	}
	unknown := t.state == orphan
	if !unknown {
		t.state = leaving
	}
	t.deleting = true
	asked := t.Ticket
	var next *ticket // who is granted if it is there
	var after *Ticket
	if !unknown && len(t.queue.waiters) > 0 {
		first := t.queue.waiters[0]
		after = &Ticket{Entry: first.Entry, Name: first.Name, ID: first.ID}
		if t.queue.watcher.view.frees(t.Key, first.Entry) {
			next = first
		}
	}
	e.mu.Unlock()
	var there bool
	var err error
	if unknown {
		err = e.store.Withdraw(ctx, &asked)
	} else {
		there, err = e.store.Delete(ctx, &asked, after)
	}
	if errors.Is(err, ErrSessionOver) { // the entry has ended with it
		err = driver.ErrLost
	}
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	e.mu.Lock()
	defer e.unlock()
	e.forget(t)
	if t.Number != 0 {
		t.queue.removed(Gone{Key: t.Key, Before: t.Number + 1})
	}
	if there {
		t.queue.handOver(next)
	} else {
		t.queue.reread()
	}
	return err
}

// releaseForeign releases a ticket that this driver does not know.
func (e *Engine) releaseForeign(ctx context.Context, h driver.Hold) error {
	return Ask(ctx, e, func(ctx context.Context) error {
		rec, err := e.lookUp(ctx, h)
		switch {
		case err != nil:
			return err
		case rec == nil:
			return driver.ErrLost
		}
		if _, err = e.store.Delete(ctx, &rec.Ticket, nil); err == nil || errors.Is(err, driver.ErrLost) {
			Deleted(e, h.Name, Gone{Key: rec.Key, Before: rec.Number + 1})
		}
		return err
	})
}
