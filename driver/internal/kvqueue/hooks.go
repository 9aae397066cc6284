package kvqueue

import "context"

// These functions are for stores. They are no methods, so that a driver that embeds an
// Engine has the methods of the driver interface and no others.

// SessionOver is to be called when a store has pushed that a session has ended: its
// tickets are lost.
func SessionOver(e *Engine, session string) {}

// Deleted is to be called when a driver has deleted an entry on its own account, as by
// Break.
func Deleted(e *Engine, name string, g Gone) {}

// Go runs a background task of the store, whose ctx ends with Close, which waits for
// it. It reports false after Close.
func Go(e *Engine, task func(ctx context.Context)) bool { return false }

// Key returns the key of a ticket that this driver holds.
func Key(e *Engine, name string, token uint64) (key string, ok bool) { return "", false }

// Failed is the error of a request that failed, as the caller with ctx is told.
func Failed(e *Engine, ctx context.Context, err error) error { return err }
