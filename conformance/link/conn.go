package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/lockerproject/locker/internal/retry"
)

// A conn is one client's connection through a [Proxy], and the proxy's own to
// the server.
type conn struct {
	proxy  *Proxy
	client *net.TCPConn
	lost   atomic.Bool // it has lost bytes, and is reset by Heal
	drop   atomic.Pointer[dropReply]

	lostAll atomic.Bool // it drops everything after the lost bytes

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
	done   chan struct{}
	ended  bool
}

// A dropReply waits for one request, see [Proxy.LoseReply].
type dropReply struct {
	match   []byte
	dropped chan struct{}
}

// serve carries the connection's traffic until either side closes it.
func (c *conn) serve() {
	defer c.proxy.remove(c)
	defer c.abort()
	if !c.passes(false) { // during a cut the server gets no new connection
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

// carry delivers data unless a fault prevents it. It returns false when the
// connection has ended.
func (c *conn) carry(dst *net.TCPConn, data []byte, reply bool) bool {
	if !c.sleep() || !c.passes(reply) {
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
		c.proxy.matchRequest(c, data)
	}
	count.Add(int64(len(data)))
	if _, err := dst.Write(data); err != nil {
		c.abort()
		return false
	}
	return true
}

// finish forwards the end of one direction: a close as a close, and anything else as
// a reset.
func (c *conn) finish(dst *net.TCPConn, err error, reply bool) {
	if !c.sleep() || !c.passes(reply) || c.lostAll.Load() {
		return
	}
	if !errors.Is(err, io.EOF) || dst.CloseWrite() != nil {
		c.abort()
	}
}

// loses reports whether to drop a reply.
func (c *conn) loses() bool {
	if d := c.drop.Load(); d != nil {
		c.abort()
		close(d.dropped)
		c.drop.Store(nil)
		return true
	}
	f, _ := c.proxy.current()
	if f.dropReplies {
		c.lost.Store(true)
	}
	return c.lost.Load()
}

// matchRequest makes the connection drop the next reply if the request matches.
func (p *Proxy) matchRequest(c *conn, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drop != nil && bytes.Contains(data, p.drop.match) {
		c.drop.Store(p.drop)
		p.drop = nil
	}
}

// passes returns true once no cut stops the direction, and false when the connection
// has ended.
func (c *conn) passes(reply bool) bool {
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

// sleep delays one direction. It returns false when the connection has ended.
func (c *conn) sleep() bool {
	f, _ := c.proxy.current()
	return f.delay <= 0 || retry.Sleep(context.Background(), f.delay, c.done)
}
