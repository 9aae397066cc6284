package zkconn

import "github.com/go-zookeeper/zk"

// observe counts changes of the connection's state, of which each new connection brings
// several: so connections have numbers.
//
// On a new connection the client sets all watches again: in several requests, one after
// the other, if they are many (128 KB of paths). Meanwhile a node may have gone whose
// watch is not set yet, while another's fires. So "this watch has not fired, and that
// one has" shows something only on the connection that both were set on: there, events
// come in the order of what they report.
//
// The client reports the changes before it sets a watch again, and, where the connection
// is not the user's, waits for observe. A user's reports them on a channel, which is read
// long before the server has been dialled and has answered.
func (c *Conn) observe(ev zk.Event) {
	if ev.Type != zk.EventSession {
		return
	}
	c.count.Add(1)
	if ev.State == zk.StateHasSession {
		c.wake()
	}
}

// connection is the number of the present connection. Call it before a watch is set.
func (c *Conn) connection() uint64 { return c.count.Load() }

// same reports whether a number is that of the present connection.
func (c *Conn) same(connection uint64) bool { return !c.blind() && c.count.Load() == connection }

// blind reports whether no events are received: then no watch is known to be of the
// present connection.
func (c *Conn) blind() bool { return c.network == nil && c.events == nil }

// wake wakes those who wait for a session, or for the next connection.
func (c *Conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again != nil {
		close(c.again)
		c.again = nil
	}
}

// Reconnected is closed when the client has a session on another connection than now, or
// never will have.
func (c *Conn) Reconnected() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again == nil {
		c.again = make(chan struct{})
	}
	return c.again
}
