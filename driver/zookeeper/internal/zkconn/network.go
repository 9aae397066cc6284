package zkconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver/internal/life"
)

// network is the present network connection of a client that Open made. The client
// itself returns little about it.
type network struct {
	life  *life.Life // of the Conn: after its end there are no more connections
	hosts *hosts
	tls   *tls.Config   // nil: without TLS
	first time.Duration // bound for a connection to be made
	most  time.Duration
	find  func(ctx context.Context, host string) ([]string, error) // its addresses

	last string // the address that was tried last; only the client's goroutine uses it

	mu      sync.Mutex
	conn    net.Conn
	several bool          // there are several addresses
	answer  time.Duration // bound for the first answer of a server: longer each time, up to most, since all may be slow
	failed  error         // why there is no session; nil if there is one, or nothing was tried yet
}

const (
	answerFirst = time.Second     // the first bound for the first answer of a server
	lookupBound = 2 * time.Second // for the addresses of a host
)

func newNetwork(names []string, config *tls.Config, first, session time.Duration) *network {
	l := life.New()
	return &network{
		hosts: newHosts(l, names), several: len(names) > 1, find: net.DefaultResolver.LookupHost,
		tls: config, first: first, life: l,
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
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	if conn, err = n.connect(network, host, port); err != nil {
		return nil, 0, err
	}
	bound = n.nextBound()
	if n.tls == nil {
		return conn, bound, nil
	}
	config := n.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	ctx, cancel := context.WithTimeout(n.life, 2*bound)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, 0, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return secure, bound, nil
}

// connect makes a connection to one of the addresses of a host. It tries them in a random
// order, and the one that was tried last at the end: the server behind it may hang.
func (n *network) connect(network, host, port string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(n.life, lookupBound)
	defer cancel()
	addrs, err := n.find(ctx, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	if i := slices.Index(addrs, n.last); i >= 0 {
		addrs = append(slices.Delete(addrs, i, i+1), n.last)
	}
	n.mu.Lock()
	n.several = n.several || len(addrs) > 1
	n.mu.Unlock()
	err = fmt.Errorf("%s has no address", host)
	dialer := net.Dialer{Timeout: n.first}
	for _, addr := range addrs {
		n.last = addr
		var conn net.Conn
		if conn, err = dialer.DialContext(n.life, network, net.JoinHostPort(addr, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// hasSeveral reports whether there may be another server than the present one.
func (n *network) hasSeveral() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.several
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

// close ends the present connection, without ending the session. After the end of life that is for good: the session
// lives on until it times out.
func (n *network) close() {
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

// SetReadDeadline keeps the deadline within the bound until the first answer has arrived. The
// client sets a zero one when it has begun to arrive, and another one after it.
func (b *boundedConn) SetReadDeadline(t time.Time) error {
	if !b.answered && (t.IsZero() || t.After(b.until)) {
		b.answered, t = t.IsZero(), b.until
	}
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
