package testbed

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between clients and a server, on a port of the loopback, and
// breaks what passes through it as networks do. Its methods may be called from
// any goroutine and at any time.
//
// What [Proxy.Cut] and [Proxy.HoldReplies] hold back is delivered by Heal, as
// TCP does after a short partition: a request sent during the cut arrives late,
// even when its client has given up. Connections that have lost bytes for good
// ([Proxy.DropReplies], [Proxy.LoseReply]) are reset instead.
type Proxy struct {
	addr, url, target string
	port              int

	accepted, requests, replies atomic.Int64

	wg sync.WaitGroup // the accepting goroutine and two for each link

	mu       sync.Mutex
	closed   bool
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	faults   faults
	changed  chan struct{} // closed, and replaced, when faults change
	trap     *trap
}

// faults is what a proxy does to its traffic at present.
type faults struct {
	cut         bool
	holdReplies bool
	dropReplies bool
	delay       time.Duration
}

// NewProxy returns a proxy in front of target (host:port), which ends with tb.
// [Server.Proxy] is the usual way to one.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{target: target, links: map[*link]struct{}{}, changed: make(chan struct{})}
	var err error
	if p.port, err = reservePort(); err != nil {
		tb.Fatalf("testbed: proxy: %v", err)
	}
	p.addr = fmt.Sprintf("127.0.0.1:%d", p.port)
	p.mu.Lock()
	err = p.listen()
	p.mu.Unlock()
	if err != nil {
		tb.Fatalf("testbed: proxy: %v", err)
	}
	tb.Cleanup(p.close)
	return p
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.addr }

// URL returns the server's URL with the proxy's address in place of the
// server's, or "" when [NewProxy] was given only an address.
func (p *Proxy) URL() string { return p.url }

// Cut is a network partition: existing connections stay open and carry
// nothing, not even their closing, and new ones are accepted and carry nothing
// either, until [Proxy.Heal].
func (p *Proxy) Cut() { p.set(func(f *faults) { f.cut = true }) }

// HoldReplies cuts one direction only: requests reach the server, and answers
// are held back until it is set to false or [Proxy.Heal] is called.
func (p *Proxy) HoldReplies(on bool) { p.set(func(f *faults) { f.holdReplies = on }) }

// DropReplies makes answers vanish: requests reach the server, and what it
// answers is thrown away. When this ends, by false or by [Proxy.Heal],
// connections that have lost something are reset.
func (p *Proxy) DropReplies(on bool) {
	p.set(func(f *faults) { f.dropReplies = on })
	if !on {
		p.abort(func(l *link) bool { return l.lost.Load() })
	}
}

// Delay makes each direction at least d slower, and at most 2d: bytes that
// arrive during a delay wait for the next one.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Reset resets all connections. New ones are served.
func (p *Proxy) Reset() { p.abort(func(*link) bool { return true }) }

// Refuse resets all connections and refuses new ones, as a machine does whose
// server is down, until [Proxy.Heal].
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Reset()
}

// LoseReply waits, once, for a request that contains match: it is delivered,
// and when the server answers, the answer is thrown away and the connection
// reset. The channel is closed then. The request must arrive in one piece of
// at most 32 KiB, as small requests on loopback do. Whatever the server sends
// next is taken for the answer: not so in HTTP/2, for which there is DropReplies.
func (p *Proxy) LoseReply(match string) <-chan struct{} {
	t := &trap{match: []byte(match), sprung: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = t
	return t.sprung
}

// Heal ends all faults, and delivers what was held back.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.trap = nil
	if p.listener == nil && !p.closed {
		if err := p.listen(); err != nil {
			// The port is reserved: nobody else can have taken it.
			panic(fmt.Sprintf("testbed: proxy: listen again: %v", err))
		}
	}
	p.mu.Unlock()
	p.abort(func(l *link) bool { return l.lost.Load() })
	p.set(func(f *faults) { *f = faults{} })
}

// Stats counts what has passed through a proxy since its start.
type Stats struct {
	Conns    int64 // connections accepted
	Open     int   // of these, open now
	Requests int64 // bytes to the server
	Replies  int64 // bytes to clients
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Conns: p.accepted.Load(), Open: len(p.links),
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
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return // it was closed
		}
		l := &link{proxy: p, client: c.(*net.TCPConn), done: make(chan struct{})}
		if !p.add(l, listener) {
			l.abort()
			continue
		}
		p.wg.Go(l.serve)
	}
}

// add registers l, unless the listener it came from has been closed since.
func (p *Proxy) add(l *link, from net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != from {
		return false
	}
	p.accepted.Add(1)
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) drop(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// abort resets the links that which selects.
func (p *Proxy) abort(which func(*link) bool) {
	p.mu.Lock()
	var list []*link
	for l := range p.links {
		if which(l) {
			list = append(list, l)
		}
	}
	p.mu.Unlock()
	for _, l := range list {
		l.abort()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Reset()
	p.wg.Wait()
	releasePort(p.port)
}

// ProxySet is one [Proxy] before each member of an ensemble.
type ProxySet struct {
	Proxies []*Proxy // in the order of the ensemble's members
	url     func(addrs string) string
}

// URL returns the ensemble's URL with the proxies' addresses.
func (s *ProxySet) URL() string { return s.url(strings.Join(s.Addrs(), ",")) }

// Addrs returns the proxies' addresses.
func (s *ProxySet) Addrs() []string {
	addrs := make([]string, len(s.Proxies))
	for i, p := range s.Proxies {
		addrs[i] = p.addr
	}
	return addrs
}

// Cut cuts every proxy.
func (s *ProxySet) Cut() { s.each((*Proxy).Cut) }

// Refuse makes every proxy refuse connections.
func (s *ProxySet) Refuse() { s.each((*Proxy).Refuse) }

// Reset resets the connections of every proxy.
func (s *ProxySet) Reset() { s.each((*Proxy).Reset) }

// Heal heals every proxy.
func (s *ProxySet) Heal() { s.each((*Proxy).Heal) }

func (s *ProxySet) each(f func(*Proxy)) {
	for _, p := range s.Proxies {
		f(p)
	}
}
