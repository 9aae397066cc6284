package link

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Proxy is a TCP proxy between clients and a server, with the faults of a network.
// Its methods may be called from any goroutine and at any time.
//
// Heal delivers what [Proxy.Cut] and [Proxy.HoldReplies] have delayed, as TCP does
// after a short partition: a request that was sent during the cut arrives late, even
// if its client has given up. Connections that have lost bytes ([Proxy.DropReplies],
// [Proxy.LoseReply]) are reset instead.
type Proxy struct {
	target string
	failed func(format string, args ...any) // reports later errors

	accepted, requests, replies atomic.Int64

	wg sync.WaitGroup // the accepting goroutine and two for each connection

	mu       sync.Mutex
	closed   bool
	addr     string
	listener net.Listener // nil while connections are refused
	conns    map[*conn]struct{}
	faults   faults
	changed  chan struct{} // closed, and replaced, when faults change
	drop     *dropReply
}

// faults are the present faults of a proxy.
type faults struct {
	cut         bool
	lose        bool
	holdReplies bool
	dropReplies bool
	delay       time.Duration
}

// NewProxy returns a proxy in front of target (host:port), on a free port. It
// ends with tb.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	return Listen(tb, "127.0.0.1:0", target)
}

// Listen returns a proxy at addr (host:port) in front of target. It ends with tb.
// The proxy listens on the same port again after [Proxy.Refuse].
func Listen(tb testing.TB, addr, target string) *Proxy {
	tb.Helper()
	p, err := start(addr, target)
	if err != nil {
		tb.Fatalf("link: %v", err)
	}
	p.failed = tb.Errorf
	tb.Cleanup(p.Close)
	return p
}

// Start returns a proxy in front of target (host:port), on a free port of the
// loopback, for a program that has no testing.TB. The caller closes it.
func Start(target string) (*Proxy, error) { return start("127.0.0.1:0", target) }

func start(addr, target string) (*Proxy, error) {
	p := &Proxy{
		addr: addr, target: target, conns: make(map[*conn]struct{}), changed: make(chan struct{}),
		failed: func(string, ...any) {},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, p.listen()
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// Cut is a network partition until [Proxy.Heal]: existing connections stay open and
// carry nothing, not even their closing; new ones are accepted and carry nothing.
func (p *Proxy) Cut() { p.set(func(f *faults) { f.cut = true }) }

// Lose drops every byte of both directions, as a network does that has lost its
// connection state, until [Proxy.Heal]. Heal resets the connections that have lost
// bytes.
func (p *Proxy) Lose() { p.set(func(f *faults) { f.lose = true }) }

// HoldReplies cuts one direction only: requests reach the server, and answers are
// delayed until HoldReplies(false) or [Proxy.Heal].
func (p *Proxy) HoldReplies(on bool) { p.set(func(f *faults) { f.holdReplies = on }) }

// DropReplies drops answers: requests reach the server, and its answers do not
// reach the clients. When it ends, by DropReplies(false) or [Proxy.Heal], the
// connections that have lost bytes are reset.
func (p *Proxy) DropReplies(on bool) {
	p.set(func(f *faults) { f.dropReplies = on })
	if !on { // as in Heal, after the fault has ended
		p.abort(func(c *conn) bool { return c.lost.Load() })
	}
}

// Delay makes each direction at least d slower, and at most 2d: bytes that
// arrive during a delay wait for the next one.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Reset resets all connections. New ones are served.
func (p *Proxy) Reset() { p.abort(func(*conn) bool { return true }) }

// Refuse resets all connections and refuses new ones until [Proxy.Heal], like a
// machine whose server is down.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.closeListener()
	p.mu.Unlock()
	p.Reset()
}

// closeListener refuses connections from now on. It is called with mu held.
func (p *Proxy) closeListener() {
	if p.listener == nil {
		return
	}
	// A process that is being started has the listener too, until it has become
	// another program: none is started meanwhile.
	syscall.ForkLock.RLock()
	_ = p.listener.Close()
	syscall.ForkLock.RUnlock()
	p.listener = nil
}

// LoseReply drops the answer to the next request that contains match: the request is
// delivered, and when the server answers, the answer is dropped, the connection is
// reset, and the channel is closed. The request must arrive in one piece of at most
// 32 KiB, as small requests on loopback do. The answer is whatever the server sends
// next, so for HTTP/2 use DropReplies.
func (p *Proxy) LoseReply(match string) <-chan struct{} {
	d := &dropReply{match: []byte(match), dropped: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = d
	return d.dropped
}

// Heal ends all faults and delivers what was delayed.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.drop = nil
	if p.listener == nil && !p.closed {
		if err := p.listenAgain(); err != nil {
			p.failed("link: listen again: %v", err)
		}
	}
	p.mu.Unlock()
	// End the faults first, so that a client that reconnects at once loses nothing.
	p.set(func(f *faults) { *f = faults{} })
	p.abort(func(c *conn) bool { return c.lost.Load() })
}

// Stats counts what has passed through a proxy since its start.
type Stats struct {
	Conns    int64 // connections accepted
	Open     int   // connections open now
	Lost     int   // open connections that have lost bytes
	Requests int64 // bytes to the server
	Replies  int64 // bytes to clients
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := 0
	for c := range p.conns {
		if c.lost.Load() {
			lost++
		}
	}
	return Stats{
		Conns: p.accepted.Load(), Open: len(p.conns), Lost: lost,
		Requests: p.requests.Load(), Replies: p.replies.Load(),
	}
}

func (p *Proxy) set(f func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

// current returns the faults and a channel that is closed when they change.
func (p *Proxy) current() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

// listen is called with mu held.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener, p.addr = l, l.Addr().String()
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// listenAgain listens on the port that Refuse has closed. The system may have given
// it to an outgoing connection for a moment. It is called with mu held.
func (p *Proxy) listenAgain() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := p.listen(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return // it was closed
		}
		served := &conn{proxy: p, client: c.(*net.TCPConn), done: make(chan struct{})}
		if !p.add(served, listener) {
			served.abort()
			continue
		}
		p.wg.Go(served.serve)
	}
}

// add registers c unless its listener has been closed.
func (p *Proxy) add(c *conn, from net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != from {
		return false
	}
	p.accepted.Add(1)
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// abort resets the connections for which which(c) is true.
func (p *Proxy) abort(which func(*conn) bool) {
	p.mu.Lock()
	var list []*conn
	for c := range p.conns {
		if which(c) {
			list = append(list, c)
		}
	}
	p.mu.Unlock()
	for _, c := range list {
		c.abort()
	}
}

// Close resets all connections and stops the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.closeListener()
	p.mu.Unlock()
	p.Reset()
	p.wg.Wait()
}
