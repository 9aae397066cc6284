package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A conn is one client's connection through a [Proxy], and the proxy's own to
// the server.
type conn struct {
	proxy  *Proxy
	client *net.TCPConn
	lost   atomic.Bool // bytes of it are gone: it cannot be healed
	trap   atomic.Pointer[trap]

	lostAll atomic.Bool // what comes after the bytes that are gone goes too

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
	done   chan struct{}
	ended  bool
}

// A trap waits for one request, see [Proxy.LoseReply].
type trap struct {
	match  []byte
	sprung chan struct{}
}

// serve carries the connection's traffic until either side closes it.
func (c *conn) serve() {
	defer c.proxy.drop(c)
	defer c.abort()
	if !c.gate(false) { // while cut, the server sees no new connection
		return
	}
	server, err := net.Dial("tcp", c.proxy.target)
	if err != nil || !c.attach(server.(*net.TCPConn)) {
		return
	}
	var up sync.WaitGroup
	up.Go(func() { c.pump(c.client, c.server, false) })
	c.pump(c.server, c.client, true)
	up.Wait()
}

func (c *conn) attach(server *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// abort resets both connections. It may be called more than once.
func (c *conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	close(c.done)
	for _, side := range []*net.TCPConn{c.client, c.server} {
		if side != nil {
			_ = side.SetLinger(0) // RST, not FIN
			_ = side.Close()
		}
	}
}

// pump carries one direction.
func (c *conn) pump(src, dst *net.TCPConn, reply bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && !c.carry(dst, buf[:n], reply) {
			return
		}
		if err != nil {
			c.finish(dst, err, reply)
			return
		}
	}
}

// carry delivers data, or not, as the proxy's faults are at present. It
// returns false when the connection is over.
func (c *conn) carry(dst *net.TCPConn, data []byte, reply bool) bool {
	if !c.sleep() || !c.gate(reply) {
		return false
	}
	if f, _ := c.proxy.current(); f.lose || c.lostAll.Load() {
		c.lostAll.Store(true)
		c.lost.Store(true)
		return true
	}
	count := &c.proxy.requests
	if reply {
		count = &c.proxy.replies
		if c.loses() {
			return true
		}
	} else {
		c.proxy.spring(c, data)
	}
	count.Add(int64(len(data)))
	if _, err := dst.Write(data); err != nil {
		c.abort()
		return false
	}
	return true
}

// finish passes on the end of one direction: a close as a close, and anything
// else as a reset.
func (c *conn) finish(dst *net.TCPConn, err error, reply bool) {
	if !c.sleep() || !c.gate(reply) || c.lostAll.Load() {
		return
	}
	if !errors.Is(err, io.EOF) || dst.CloseWrite() != nil {
		c.abort()
	}
}

// loses tells whether an answer that has just come is to vanish.
func (c *conn) loses() bool {
	if t := c.trap.Load(); t != nil {
		c.abort()
		close(t.sprung)
		c.trap.Store(nil)
		return true
	}
	f, _ := c.proxy.current()
	if f.dropReplies {
		c.lost.Store(true)
	}
	return c.lost.Load()
}

// spring arms the connection when the proxy's trap matches the request.
func (p *Proxy) spring(c *conn, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trap != nil && bytes.Contains(data, p.trap.match) {
		c.trap.Store(p.trap)
		p.trap = nil
	}
}

// gate returns once the direction is open; false when the connection is over.
func (c *conn) gate(reply bool) bool {
	for {
		f, changed := c.proxy.current()
		if !f.cut && !(reply && f.holdReplies) {
			select {
			case <-c.done:
				return false
			default:
				return true
			}
		}
		select {
		case <-changed:
		case <-c.done:
			return false
		}
	}
}

// sleep is the delay of one direction; false when the connection is over.
func (c *conn) sleep() bool {
	f, _ := c.proxy.current()
	if f.delay <= 0 {
		return true
	}
	t := time.NewTimer(f.delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.done:
		return false
	}
}
