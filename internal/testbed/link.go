package testbed

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link is one client's connection through a [Proxy], and the proxy's own to
// the server.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	lost   atomic.Bool // bytes of it are gone: it cannot be healed
	trap   atomic.Pointer[trap]

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

// serve carries the link's traffic until either side closes it.
func (l *link) serve() {
	defer l.proxy.drop(l)
	defer l.abort()
	if !l.gate(false) { // while cut, the server sees no new connection
		return
	}
	server, err := net.Dial("tcp", l.proxy.target)
	if err != nil || !l.attach(server.(*net.TCPConn)) {
		return
	}
	var up sync.WaitGroup
	up.Go(func() { l.pump(l.client, l.server, false) })
	l.pump(l.server, l.client, true)
	up.Wait()
}

func (l *link) attach(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = server.Close()
		return false
	}
	l.server = server
	return true
}

// abort resets both connections. It may be called more than once.
func (l *link) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	close(l.done)
	for _, c := range []*net.TCPConn{l.client, l.server} {
		if c != nil {
			_ = c.SetLinger(0) // RST, not FIN
			_ = c.Close()
		}
	}
}

// pump carries one direction.
func (l *link) pump(src, dst *net.TCPConn, reply bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && !l.carry(dst, buf[:n], reply) {
			return
		}
		if err != nil {
			l.finish(dst, err, reply)
			return
		}
	}
}

// carry delivers data, or not, as the proxy's faults of the moment have it. It
// returns false when the link is over.
func (l *link) carry(dst *net.TCPConn, data []byte, reply bool) bool {
	if !l.sleep() || !l.gate(reply) {
		return false
	}
	count := &l.proxy.requests
	if reply {
		count = &l.proxy.replies
		if l.loses() {
			return true
		}
	} else {
		l.proxy.spring(l, data)
	}
	count.Add(int64(len(data)))
	if _, err := dst.Write(data); err != nil {
		l.abort()
		return false
	}
	return true
}

// finish passes on the end of one direction: a close as a close, and anything
// else as a reset.
func (l *link) finish(dst *net.TCPConn, err error, reply bool) {
	if !l.sleep() || !l.gate(reply) {
		return
	}
	if !errors.Is(err, io.EOF) || dst.CloseWrite() != nil {
		l.abort()
	}
}

// loses tells whether an answer that has just come is to vanish.
func (l *link) loses() bool {
	if t := l.trap.Load(); t != nil {
		l.abort()
		close(t.sprung)
		l.trap.Store(nil)
		return true
	}
	f, _ := l.proxy.current()
	if f.dropReplies {
		l.lost.Store(true)
	}
	return l.lost.Load()
}

// spring arms the link when the proxy's trap matches the request.
func (p *Proxy) spring(l *link, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trap != nil && bytes.Contains(data, p.trap.match) {
		l.trap.Store(p.trap)
		p.trap = nil
	}
}

// gate returns once the direction is open; false when the link is over.
func (l *link) gate(reply bool) bool {
	for {
		f, changed := l.proxy.current()
		if !f.cut && !(reply && f.holdReplies) {
			select {
			case <-l.done:
				return false
			default:
				return true
			}
		}
		select {
		case <-changed:
		case <-l.done:
			return false
		}
	}
}

// sleep is the delay of one direction; false when the link is over.
func (l *link) sleep() bool {
	f, _ := l.proxy.current()
	if f.delay <= 0 {
		return true
	}
	t := time.NewTimer(f.delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.done:
		return false
	}
}
