package kvqueue

import (
	"context"
	"errors"

	"github.com/lockerproject/locker/driver"
)

// These functions are for stores. They are no methods, so that a driver that embeds an
// Engine has the methods of the driver interface and no others.

// Deleted notes that an entry was deleted. A driver calls it, for example, in Break.
func Deleted(e *Engine, name string, g Gone) {
	e.mu.Lock()
	defer e.unlock()
	if q := e.queues[name]; q != nil {
		q.deleted(g)
	}
}

// Go runs a background task of the store. Close ends its ctx, and waits for the task. Go
// reports false after Close.
func Go(e *Engine, task func(ctx context.Context)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spawn(func() { task(e.ctx) })
}

// Key returns the key of a ticket that this driver holds.
func Key(e *Engine, name string, token uint64) (key string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queues[name]
	if q == nil {
		return "", false
	}
	for _, t := range q.slots {
		if t != nil && t.state == held && t.Number == token {
			return t.Key, true
		}
	}
	return "", false
}

// Call runs a request of a driver's own method. Close ends the request's ctx too. Call
// returns the error as the method's caller gets it.
func Call(ctx context.Context, e *Engine, request func(context.Context) error) error {
	if e.ctx.Err() != nil {
		return driver.ErrClosed
	}
	ctx, done := e.bind(ctx)
	defer done()
	err := request(ctx)
	if err == nil || errors.Is(err, driver.ErrLost) {
		return err
	}
	return e.failed(ctx, err)
}

// Ask is Call after Store.Agree: it refuses a store whose locks are kept in another way.
func Ask(ctx context.Context, e *Engine, request func(context.Context) error) error {
	return Call(ctx, e, func(ctx context.Context) error {
		if err := e.store.Agree(ctx, false); err != nil {
			return err
		}
		return request(ctx)
	})
}
