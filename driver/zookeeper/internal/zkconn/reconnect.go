package zkconn

import "github.com/go-zookeeper/zk"

// observe counts the changes of the connection's state. Each new connection brings
// several, so the count serves as a connection's number.
//
// On a new connection the client sets all watches again: in several requests, one after
// the other, if they are many (128 KB of paths). Meanwhile a node may have gone whose
// watch is not set yet, while another watch fires. So "this watch has not fired, and that
// one has" proves something only on the connection that both were set on: there, events
// arrive in the order of the changes that they report.
//
// The client reports the changes before it sets a watch again. If Open made the
// connection, the client waits for observe. A user's connection reports them on a
// channel, which is read long before the server has been dialled and has answered.
func (c *Conn) observe(ev zk.Event) {
	if ev.Type != zk.EventSession {
		return
	}
	c.count.Add(1)
	if ev.State == zk.StateHasSession {
		c.wake()
	}
}

// Number returns the number of the present connection. Call it before a request whose
// answer is to be of that connection.
func (c *Conn) Number() uint64 { return c.count.Load() }

// Same reports whether a number is the present connection's.
func (c *Conn) Same(connection uint64) bool { return c.count.Load() == connection }

// wake wakes the callers that wait for a session, or for the next connection.
func (c *Conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again != nil {
		close(c.again)
		c.again = nil
	}
}

// Reconnected returns a channel that is closed when the client has a session on a later
// connection, or never will have one.
func (c *Conn) Reconnected() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again == nil {
		c.again = make(chan struct{})
	}
	return c.again
}
