package zookeeper

import (
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// reconnects tells whether a watch was set on the present connection. On a new one the
// client sets all its watches again: in several requests, one after the other, if they
// are many (128 KB of paths). Meanwhile a node may have gone whose watch is not set yet,
// while another's fires. So "this watch has not fired, and that one has" shows something
// only on the connection that both were set on: there, events come in the order of
// what they report.
type reconnects struct {
	unknown bool // no events are received: no watch is known to be of this connection
	count   atomic.Uint64

	mu    sync.Mutex
	again chan struct{} // closed when there is a session again; nil: nobody waits
}

// observe counts changes of the connection's state, of which each new connection brings
// several. The client reports them before it sets a watch again, and, where the
// connection is the driver's own, waits for observe. A user's reports them on a channel,
// which is read long before the server has been dialled and has answered.
func (r *reconnects) observe(ev zk.Event) {
	if ev.Type != zk.EventSession {
		return
	}
	r.count.Add(1)
	if ev.State == zk.StateHasSession {
		r.wake()
	}
}

// wake wakes those who wait for a session, or for the next connection.
func (r *reconnects) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.again != nil {
		close(r.again)
		r.again = nil
	}
}

// next returns a channel that is closed when the client has a session on another
// connection, or never will have.
func (r *reconnects) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.again == nil {
		r.again = make(chan struct{})
	}
	return r.again
}

// now identifies the present connection. Call it before a watch is set.
func (r *reconnects) now() uint64 { return r.count.Load() }

// same reports whether a connection is the present one.
func (r *reconnects) same(connection uint64) bool {
	return !r.unknown && r.count.Load() == connection
}
