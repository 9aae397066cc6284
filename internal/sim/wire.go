package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// wire is a connection on which both ends send bytes whenever they want to, as HTTP/2 does.
// What is sent arrives in order. Nothing of it is lost before the connection fails; while
// the path is cut it waits, since TCP sends it again.
type wire struct {
	p              *path
	rnd            *stream
	client, server *wireEnd

	mu    sync.Mutex
	drops bool // it has failed, and what the client has sent and has not arrived never will
}

// wireEnd is one end, a net.Conn.
type wireEnd struct {
	wire          *wire
	local, remote net.Addr

	mu       sync.Mutex
	received []byte
	err      error         // for reads, when all that was received is read, and for writes
	news     chan struct{} // there is something to read
	arrives  time.Time     // when what this end has sent last arrives
}

// wireTo connects to a server, which sees the client's end as at remote.
func (p *path) wireTo(ctx context.Context, remote net.Addr, accept func(net.Conn) bool) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	rnd := newStream(p.w.seed, fmt.Sprint("wire ", p.process, p.s.name, p.dials))
	p.mu.Unlock()
	if _, err := request(ctx, p, "dial", func(context.Context) bool { return true }); err != nil {
		if errors.Is(err, errReset) {
			err = errRefused
		}
		return nil, err
	}
	w := &wire{p: p, rnd: rnd}
	here := &net.UnixAddr{Name: p.s.name, Net: "sim"}
	w.client = &wireEnd{wire: w, local: remote, remote: here, news: make(chan struct{}, 1)}
	w.server = &wireEnd{wire: w, local: here, remote: remote, news: make(chan struct{}, 1)}
	p.mu.Lock()
	p.conns[w] = struct{}{}
	p.mu.Unlock()
	if !accept(w.server) {
		w.fail(errReset)
		return nil, errRefused
	}
	return w.client, nil
}

func (e *wireEnd) peer() *wireEnd {
	if e == e.wire.client {
		return e.wire.server
	}
	return e.wire.client
}

// Write never blocks.
func (e *wireEnd) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return 0, e.err
	}
	e.send(bytes.Clone(b), nil)
	return len(b), nil
}

// send sends bytes, or that the connection has ended. With mu held.
func (e *wireEnd) send(b []byte, end error) {
	at, _ := e.wire.p.arrival(e.wire.rnd)
	if !at.After(e.arrives) {
		at = e.arrives.Add(1)
	}
	e.arrives = e.wire.p.w.unique(at)
	time.AfterFunc(time.Until(e.arrives), func() { e.peer().receive(b, end) })
}

func (e *wireEnd) receive(b []byte, end error) {
	e.wire.mu.Lock()
	dropped := e.wire.drops
	e.wire.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	if !dropped {
		e.received = append(e.received, b...)
	}
	e.err = end
	e.wake()
}

func (e *wireEnd) wake() {
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// fail ends the connection for the client. What it has sent may arrive all the same, unless
// the process or the server has died.
func (w *wire) fail(err error) {
	w.p.mu.Lock()
	delete(w.p.conns, w)
	dead := w.p.dead
	w.p.mu.Unlock()
	_, down, _ := w.p.s.state()
	lost := dead || down.After(time.Now()) || w.rnd.one(2)
	w.mu.Lock()
	w.drops = lost
	w.mu.Unlock()
	w.client.receive(nil, err)
	if lost {
		w.server.receive(nil, err)
		return
	}
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	w.client.send(nil, err)
}

func (e *wireEnd) Read(b []byte) (int, error) {
	for {
		e.mu.Lock()
		n := copy(b, e.received)
		e.received = e.received[n:]
		err := e.err
		e.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case err != nil:
			return 0, err
		}
		<-e.news
	}
}

// Close sends the end behind all that was sent.
func (e *wireEnd) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.send(nil, io.EOF)
		e.err = net.ErrClosed
		e.wake()
	}
	return nil
}

func (e *wireEnd) LocalAddr() net.Addr            { return e.local }
func (e *wireEnd) RemoteAddr() net.Addr           { return e.remote }
func (*wireEnd) SetDeadline(time.Time) error      { return nil }
func (*wireEnd) SetReadDeadline(time.Time) error  { return nil }
func (*wireEnd) SetWriteDeadline(time.Time) error { return nil }
