package memcached

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

// errTimeout ends a connection whose server has not answered in time, and with it all unanswered requests.
var errTimeout = fmt.Errorf("memcached has not answered in time: %w", os.ErrDeadlineExceeded)

// errEvicts refuses a server that may evict locks.
var errEvicts = errors.New("the server may evict locks when its memory is full: start memcached with -M, or accept that with evictions=accept")

// errNoCAS refuses a server that changes no item on condition.
var errNoCAS = errors.New("the server has no compare-and-swap: start memcached without -C")

// client is one server, and the one connection to it.
type client struct {
	addr string
	o    options

	life    *life.Life
	timer   shortTimer
	dialing life.Shared[*conn]

	mu      sync.Mutex
	current *conn
	eras    uint64
}

func newClient(addr string, o options) *client {
	return &client{addr: addr, o: o, life: life.New()}
}

func (c *client) close() {
	c.life.End()
	if n := c.connection(); n != nil {
		n.fail(driver.ErrClosed)
	}
	c.life.Wait()
	c.timer.close()
}

// pause waits for a time that is too short for Go's timers. It does so only beside a real socket: in a bubble of
// testing/synctest nobody may wait for the system.
func (c *client) pause(d time.Duration) bool {
	n := c.connection()
	return n != nil && n.socket && c.timer.wait(d)
}

// connection returns the last connection; nil: there was none.
func (c *client) connection() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// connect returns the connection, and makes one if necessary.
func (c *client) connect(ctx context.Context) (*conn, error) {
	if n := c.connection(); n != nil && n.alive() {
		return n, nil
	}
	return c.dialing.Get(ctx, c.life, c.dial)
}

// dial connects once.
func (c *client) dial() (*conn, error) {
	if n := c.connection(); n != nil && n.alive() { // somebody else was faster
		return n, nil
	}
	n, err := c.open()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eras++
	n.era = c.eras
	c.current = n
	if !c.life.Go(n.write) || !c.life.Go(n.read) {
		n.fail(driver.ErrClosed)
	}
	return n, nil
}

// open connects, logs in, and reads the settings: another server may answer at the address now.
func (c *client) open() (*conn, error) {
	ctx, cancel := context.WithTimeout(c.life, c.o.dialTimeout)
	defer cancel()
	nc, err := c.o.dial(ctx, "tcp", c.addr)
	if err != nil {
		return nil, driver.Unavailable(err)
	}
	if l, ok := nc.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0) // after Close, the system does not go on sending what was not acknowledged
	}
	_, socket := nc.(syscall.Conn)
	if c.o.tls != nil {
		nc = tls.Client(nc, tlsurl.ForHost(c.o.tls, c.addr))
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	n := &conn{nc: nc, socket: socket, timeout: c.o.timeout, r: bufio.NewReaderSize(nc, 64<<10), ready: make(chan struct{}, 1), dead: make(chan struct{})}
	err = n.greet(&c.o)
	if !stop() {
		err = driver.Unavailable(errTimeout)
	}
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("memcached at %s: %w", c.addr, err)
	}
	return n, nil
}

// conn is a connection, on which requests are answered in order.
type conn struct {
	nc       net.Conn
	socket   bool // the system's, and no dialer's own
	r        *bufio.Reader
	timeout  time.Duration
	era      uint64
	settings settings

	ready chan struct{} // there is something to write
	dead  chan struct{} // closed when it has failed

	mu       sync.Mutex
	calls    []*call // not answered
	out      []byte  // not written
	err      error
	measured time.Time
	used     float64 // part of the server's memory, when it was measured
}

// call is a request with a number of answers.
type call struct {
	want    int
	replies []reply
	err     error
	done    chan struct{}
	limit   *time.Timer // ends the connection, also if the caller has left by then
}

// end ends a call.
func (c *call) end(err error) {
	c.limit.Stop()
	c.err = err
	close(c.done)
}

// greet logs in and reads the settings.
func (n *conn) greet(o *options) error {
	if o.user != "" {
		login := o.user + " " + o.password
		if _, err := fmt.Fprintf(n.nc, "set login 0 0 %d\r\n%s\r\n", len(login), login); err != nil {
			return driver.Unavailable(err)
		}
		switch line, err := readLine(n.r); {
		case err != nil:
			return driver.Unavailable(err)
		case line != "STORED":
			return fmt.Errorf("the login was refused: %w", &refusal{line})
		}
	}
	if _, err := n.nc.Write([]byte("version\r\nstats settings\r\n")); err != nil {
		return driver.Unavailable(err)
	}
	line, err := readLine(n.r)
	version, ok := strings.CutPrefix(line, "VERSION ")
	switch {
	case err != nil || ok:
	case strings.HasPrefix(line, "CLIENT_ERROR "): // as of a server that asks for a login
		return &refusal{line}
	default: // another kind of server
		return driver.Unavailable(&refusal{line})
	}
	if err == nil {
		n.settings, err = readSettings(n.r)
	}
	n.settings.version = version
	switch {
	case errors.As(err, new(*refusal)):
		return err
	case err != nil:
		return driver.Unavailable(err)
	}
	switch {
	case n.settings.noCAS:
		return errNoCAS
	case n.settings.evicts && !o.evictions:
		return errEvicts
	}
	return nil
}

func (n *conn) alive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err == nil
}

// fail ends the connection, and all calls on it.
func (n *conn) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return
	}
	n.err = err
	close(n.dead)
	_ = n.nc.Close()
	for _, c := range n.calls {
		c.end(err)
	}
	n.calls, n.out = nil, nil
}

// do sends a request and waits for its answers.
func (n *conn) do(ctx context.Context, req []byte, want int) ([]reply, error) {
	c := &call{want: want, done: make(chan struct{})}
	n.mu.Lock()
	if n.err != nil {
		n.mu.Unlock()
		return nil, n.err
	}
	c.limit = time.AfterFunc(n.timeout, func() { n.fail(driver.Unavailable(errTimeout)) })
	n.calls = append(n.calls, c)
	n.out = append(n.out, req...)
	n.mu.Unlock()
	select {
	case n.ready <- struct{}{}:
	default:
	}
	select {
	case <-c.done:
		return c.replies, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write writes what there is to write.
func (n *conn) write() {
	var spare []byte
	for {
		select {
		case <-n.dead:
			return
		case <-n.ready:
		}
		n.mu.Lock()
		out := n.out
		n.out = spare[:0]
		n.mu.Unlock()
		if _, err := n.nc.Write(out); err != nil {
			n.fail(driver.Unavailable(err))
			return
		}
		spare = out
	}
}

// read reads answers.
func (n *conn) read() {
	for {
		a, err := readReply(n.r)
		if err != nil {
			n.fail(driver.Unavailable(err))
			return
		}
		n.mu.Lock()
		if len(n.calls) > 0 {
			c := n.calls[0]
			if c.replies = append(c.replies, a); len(c.replies) == c.want {
				n.calls = n.calls[1:]
				c.end(nil)
			}
		}
		n.mu.Unlock()
	}
}
