package zkconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// network is the present network connection of a client that Open made. The client
// itself returns little about it.
type network struct {
	hosts *hosts
	tls   *tls.Config   // nil: without TLS
	first time.Duration // bound for a connection to be made
	most  time.Duration
	life  context.Context
	end   context.CancelFunc // no more connections

	mu     sync.Mutex
	conn   net.Conn
	answer time.Duration // bound for the first answer of a server: longer each time, up to most, since all may be slow
	failed error         // why there is no session; nil if there is one, or nothing was tried yet
}

// answerFirst is the first bound for the first answer of a server.
const answerFirst = time.Second

func newNetwork(names []string, config *tls.Config, first, session time.Duration) *network {
	life, end := context.WithCancel(context.Background())
	return &network{
		hosts: newHosts(life, names), tls: config, first: first, life: life, end: end,
		answer: answerFirst, most: max(session*2/3, answerFirst), // a server that is slower loses its clients anyway
	}
}

// dial is the client's zk.Dialer. The client's own timeout is fixed.
func (n *network) dial(network, address string, _ time.Duration) (net.Conn, error) {
	conn, bound, err := n.open(network, address)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && n.life.Err() != nil {
		_ = conn.Close()
		err = net.ErrClosed
	}
	if err != nil {
		n.failed = err
		return nil, err
	}
	n.conn = &boundedConn{Conn: conn, network: n, until: time.Now().Add(bound)}
	return n.conn, nil
}

// open makes a connection. It returns the bound for the server's first answer. A TLS
// handshake, which takes two answers, may take twice that.
func (n *network) open(network, address string) (conn net.Conn, bound time.Duration, err error) {
	ctx, cancel := context.WithTimeout(n.life, n.first)
	defer cancel()
	conn, err = new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, 0, err
	}
	bound = n.nextBound()
	if n.tls == nil {
		return conn, bound, nil
	}
	config := n.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = n.hosts.host(address)
	}
	ctx, cancel = context.WithTimeout(n.life, 2*bound)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, 0, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return secure, bound, nil
}

// nextBound returns the bound for the first answer on a connection. It is longer each time.
func (n *network) nextBound() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	bound := n.answer
	n.answer = min(2*bound, n.most)
	return bound
}

// hasSession notes that a server has given a session.
func (n *network) hasSession() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed, n.answer = nil, answerFirst
}

// fail notes why a connection was lost.
func (n *network) fail(err error) {
	if errors.Is(err, net.ErrClosed) {
		return // this process has closed it
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = err
}

// lastError returns why there is no session, if that is known.
func (n *network) lastError() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

func (n *network) present() net.Conn {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conn
}

// close ends the connection for good, without ending the session: the session lives on
// until it times out.
func (n *network) close() {
	n.end()
	if conn := n.present(); conn != nil {
		_ = conn.Close()
	}
}

// boundedConn is a connection that waits for the first answer no longer than a bound,
// since the server may hang with its port still open. The client itself waits for nearly
// seven session timeouts. Its session would end, although other servers could serve it.
type boundedConn struct {
	net.Conn
	network  *network
	until    time.Time // for the first answer
	answered bool
}

// SetReadDeadline keeps the deadline within the bound until the client sets a zero one,
// which it does when the first answer begins to arrive.
func (b *boundedConn) SetReadDeadline(t time.Time) error {
	if !b.answered && t.After(b.until) {
		t = b.until
	}
	b.answered = b.answered || t.IsZero()
	return b.Conn.SetReadDeadline(t)
}

// Read notes why the connection ends.
func (b *boundedConn) Read(p []byte) (int, error) {
	read, err := b.Conn.Read(p)
	if err != nil {
		verb := "lost the connection to"
		if !b.answered {
			verb = "no session from"
		}
		b.network.fail(fmt.Errorf("%s %v: %w", verb, b.RemoteAddr(), err))
	}
	return read, err
}
