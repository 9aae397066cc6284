package mysql

import (
	"context"
	"sync"
	"time"
)

// Bounds of the wait for others of this process that take the same name in their
// transactions. They may wait for something that the caller's transaction holds,
// which the database can only see when the caller waits there, too.
const (
	txQueueBound = 3 * time.Second
	txTryBound   = 100 * time.Millisecond
)

// txLines let one transaction of a process at a time take a name.
type txLines struct {
	mu    sync.Mutex
	names map[string]*txLine
}

type txLine struct {
	turn  chan struct{} // of one
	users int
}

// enter waits for the caller's turn, or for as long as it may, and returns what ends it.
func (t *txLines) enter(ctx context.Context, name string, bound time.Duration) (leave func()) {
	t.mu.Lock()
	if t.names == nil {
		t.names = make(map[string]*txLine)
	}
	l := t.names[name]
	if l == nil {
		l = &txLine{turn: make(chan struct{}, 1)}
		t.names[name] = l
	}
	l.users++
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	mine := false
	select {
	case l.turn <- struct{}{}:
		mine = true
	case <-ctx.Done():
	}
	return func() {
		if mine {
			<-l.turn
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(t.names, name)
		}
	}
}
