package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// connection is the network connection that the client has at present, where it is the
// driver's own: the client returns little about it.
type connection struct {
	hosts *hosts
	tls   *tls.Config   // nil: without TLS
	first time.Duration // bound for a connection to be made
	most  time.Duration
	life  context.Context
	end   context.CancelFunc // no more connections

	mu     sync.Mutex
	conn   net.Conn
	answer time.Duration // bound for the first answer of a server: longer each time, up to most
	failed error         // why there is no session; nil: there is one, or nothing was tried yet
}

// answerFirst is the first bound for the first answer of a server.
const answerFirst = time.Second

func newConnection(names []string, config *tls.Config, first, session time.Duration) *connection {
	life, end := context.WithCancel(context.Background())
	return &connection{
		hosts: newHosts(life, names), tls: config, first: first, life: life, end: end,
		answer: answerFirst, most: max(session/5, answerFirst),
	}
}

// dial is the client's zk.Dialer. The client's own timeout is fixed.
func (c *connection) dial(network, address string, _ time.Duration) (net.Conn, error) {
	conn, err := c.open(network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.life.Err() != nil {
		_ = conn.Close()
		err = net.ErrClosed
	}
	if err != nil {
		c.failed = err
		return nil, err
	}
	c.conn = &boundedConn{Conn: conn, connection: c, until: time.Now().Add(c.answer)}
	c.answer = min(2*c.answer, c.most)
	return c.conn, nil
}

func (c *connection) open(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.life, c.first)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || c.tls == nil {
		return conn, err
	}
	config := c.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = c.hosts.host(address)
	}
	ctx, cancel = context.WithTimeout(c.life, c.most)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return secure, nil
}

// hasSession notes that a server has given a session.
func (c *connection) hasSession() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed, c.answer = nil, answerFirst
}

// fail notes why a connection was lost.
func (c *connection) fail(err error) {
	if errors.Is(err, net.ErrClosed) {
		return // closed here
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// lastError returns why there is no session, if that is known.
func (c *connection) lastError() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *connection) present() net.Conn {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// close ends the connection for good, without telling the server: the session lives on
// until it times out.
func (c *connection) close() {
	c.end()
	if conn := c.present(); conn != nil {
		_ = conn.Close()
	}
}

// boundedConn is a connection that waits for the first answer no longer than a bound:
// the server may hang, with its port still open. The client itself waits for nearly
// seven sessions, in which the one that it has ends, though others would serve it.
type boundedConn struct {
	net.Conn
	connection *connection
	until      time.Time // for the first answer
	answered   bool
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
	n, err := b.Conn.Read(p)
	if err != nil {
		verb := "lost the connection to"
		if !b.answered {
			verb = "no session from"
		}
		b.connection.fail(fmt.Errorf("%s %v: %w", verb, b.RemoteAddr(), err))
	}
	return n, err
}

// confirmOrReconnect is confirm for a renewal. If it is not answered in its time the
// client has to leave the server, which hangs or is cut off from the others, for
// another: by itself it would notice after two thirds of the session, when the leases
// are over. A short ctx of a caller is no reason to leave, nor is one request that was
// lost while others are confirmed.
func (d *Driver) confirmOrReconnect(ctx context.Context) error {
	sent, s, conn := time.Now(), d.session(), d.connection.present()
	err := d.confirm(ctx)
	if err == nil || ctx.Err() == nil || s == nil || conn == nil || d.connection.hosts.Len() < 2 {
		return err
	}
	if time.Since(sent) > s.lease()/8 && s.confirmedAt().Before(sent) {
		_ = conn.Close() // the client notices, and goes to the next server
	}
	return err
}
