package casqueue

import (
	"context"
	"fmt"
	"time"
)

// read reads the document of a file, and the heartbeats of the tickets that were in it. So a process that tries
// repeatedly, or inspects, observes tickets as a waiter does.
func (e *Engine) read(ctx context.Context, f *file) error {
	processes := make(map[string]struct{})
	e.mu.Lock()
	for _, q := range f.doc.Queues {
		e.watch(q, len(q.Tickets), processes)
	}
	e.mu.Unlock()
	if err := e.sample(ctx, processes, map[*file]error{f: nil}); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return f.broken
}

// took takes in what was read, unless the file may be newer because this process has written since the reading was
// begun. It reports false if the file may also be older: then somebody has to read again. With mu held.
func (e *Engine) took(f *file, read Document, begun time.Time) bool {
	if begun.Before(f.notOlderThan) {
		return read.Version == f.version || begun.Before(f.putSent)
	}
	f.broken = nil
	if !f.known || read.Version != f.version || read.Expired {
		doc, err := decode(read.Value)
		if err != nil {
			f.broken = fmt.Errorf("key %s: %w", f.key, err)
			return true
		}
		if read.Expired {
			doc.expire()
		}
		doc.carry(f.doc)
		f.doc, f.version, f.known = doc, read.Version, true
		f.bytes = len(read.Value)
	}
	f.notOlderThan = begun
	if f.unanswered && f.version.Number != f.replaces.Number {
		f.unanswered = false // that Put has been done, or cannot be done any more
	}
	e.learn(f)
	return true
}
