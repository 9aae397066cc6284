package zookeeper

import (
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// links tells whether a watch was set on the present connection. On a new one
// the client sets all its watches again: in several requests, one after the
// other, if they are many (128 KB of paths). Meanwhile a node may have gone whose
// watch is not set yet, while another's fires. So that one has not fired and
// another has shows something only on the connection that they were set on:
// there, events come in the order of what they tell of.
type links struct {
	blind bool // no events are heard: never trust
	count atomic.Uint64

	mu    sync.Mutex
	again chan struct{} // closed when there is a session again; nil: nobody asked
}

// hear counts changes of the connection's state, of which each new connection
// brings several. The client tells of them before it sets a watch again, and, where
// the connection is ours, waits until it is heard. A user's tells by a channel, which
// is read long before the server has been dialled and has answered.
func (l *links) hear(ev zk.Event) {
	if ev.Type != zk.EventSession {
		return
	}
	l.count.Add(1)
	if ev.State == zk.StateHasSession {
		l.wake()
	}
}

// wake wakes those who wait for a session, or for the next connection.
func (l *links) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again != nil {
		close(l.again)
		l.again = nil
	}
}

// back returns a channel that is closed when the client has a session on
// another connection, or never will have.
func (l *links) back() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again == nil {
		l.again = make(chan struct{})
	}
	return l.again
}

// now is to be asked before a watch is set.
func (l *links) now() uint64 { return l.count.Load() }

// same reports whether the connection is the one of that time.
func (l *links) same(link uint64) bool { return !l.blind && l.count.Load() == link }
