// Package zkconn is a connection to ZooKeeper with one session, over
// github.com/go-zookeeper/zk, which is called the client below. It adds to the client
// that
//
//   - requests take contexts, are not left behind to be sent later, and fail with the
//     reason why no server answers;
//   - it says how long the session is sure to last, and tells when it has ended;
//   - watches are shared, and tell what they show after the client has reconnected;
//   - a server that hangs is left for another, where there are several.
package zkconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// Conn is a connection. Make it with [Open] or [Adopt], and then call Start.
type Conn struct {
	zk      *zk.Conn
	network *network // nil: the connection is the user's
	options Options
	timeout reflect.Value // see timeoutField

	events  <-chan zk.Event // of a user's connection; may be nil
	queue   *events         // of a connection that was opened here
	ended   func(*Session)
	event   func(zk.Event)
	login   login
	watches watches
	count   atomic.Uint64 // of changes of the connection's state
	closing sync.Once
	life    context.Context // ends with Close
	end     context.CancelFunc
	work    sync.WaitGroup

	mu    sync.Mutex
	sess  *Session      // nil: none at present
	over  bool          // a user's connection was closed
	again chan struct{} // closed when there is a session again; nil: nobody waits
}

// Options are what a connection is made with.
type Options struct {
	// Base is the node that is asked for to see whether the session lives.
	Base string
	// Session is the timeout that Open asks for. It is what Timeout says while there
	// is no session.
	Session time.Duration

	// What follows is for Open.

	Servers     []string      // host:port
	TLS         *tls.Config   // nil: without TLS
	Dial        time.Duration // bound for a connection to be made
	Credentials string        // user:password; "": none
	Logger      *slog.Logger  // of the client; nil: it logs nothing, since errors are returned
}

// Open makes a connection. It waits for no server.
func Open(o Options) (*Conn, error) {
	return open(newNetwork(o.Servers, o.TLS, o.Dial, o.Session), o)
}

func open(n *network, o Options) (*Conn, error) {
	if _, err := timeoutField(new(zk.Conn)); err != nil {
		return nil, err
	}
	c := newConn(o)
	c.network, c.queue = n, &events{more: make(chan struct{}, 1)}
	conn, _, err := zk.Connect(o.Servers, o.Session,
		zk.WithLogger(clientLogger{o.Logger}), zk.WithLogInfo(o.Logger != nil), zk.WithHostProvider(n.hosts), zk.WithDialer(n.dial),
		zk.WithEventCallback(func(ev zk.Event) {
			if ev.Type == zk.EventSession && ev.State == zk.StateHasSession {
				n.hasSession()
			}
			c.observe(ev)
			c.queue.add(ev)
		}))
	if err != nil {
		return nil, err
	}
	c.zk = conn
	c.timeout, err = timeoutField(conn)
	return c, err
}

// Adopt takes a connection of the user's, which Close leaves open. Its events may be nil:
// then the end of a session is noticed later, at the next request.
func Adopt(conn *zk.Conn, events <-chan zk.Event, o Options) (*Conn, error) {
	field, err := timeoutField(conn)
	if err != nil {
		return nil, err
	}
	c := newConn(o)
	c.zk, c.events, c.timeout = conn, events, field
	return c, nil
}

func newConn(o Options) *Conn {
	c := &Conn{options: o, login: login{busy: make(chan struct{}, 1)}, watches: watches{set: make(map[string]Watch)}}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Start begins to handle the connection's events. It calls ended when a session has
// ended, and event with each event after it was handled; the caller of any method but
// these two must not hold a lock that ended takes.
func (c *Conn) Start(ended func(*Session), event func(zk.Event)) {
	c.ended, c.event = ended, event
	switch {
	case c.queue != nil:
		c.Go(c.handleAll)
	case c.events != nil:
		c.Go(c.listen)
	}
	c.Session() // if there is one already, its timeout is known from now on
}

// Go runs a background task, whose ctx ends with Close, which waits for it. It reports
// false after Close.
func (c *Conn) Go(task func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.work.Go(func() { task(c.life) })
	return true
}

// Closed is closed by Close.
func (c *Conn) Closed() <-chan struct{} { return c.life.Done() }

// Own reports whether the connection was opened here, and is not the user's.
func (c *Conn) Own() bool { return c.network != nil }

// Close ends all background tasks and, unless the connection is the user's, the session.
// With keep the session lives on until it times out.
func (c *Conn) Close(keep bool) {
	c.closing.Do(func() {
		c.mu.Lock()
		c.end()
		c.mu.Unlock()
		if c.network != nil {
			c.disconnect(keep)
		}
		c.work.Wait()
	})
}

// closeBound is how long Close waits for the server to confirm the end of the session.
const closeBound = 100 * time.Millisecond

// disconnect closes a connection that was opened here.
func (c *Conn) disconnect(keep bool) {
	if keep || c.zk.State() != zk.StateHasSession {
		c.network.close()
	}
	done := make(chan struct{})
	go func() {
		c.zk.Close()
		close(done)
	}()
	bound := time.NewTimer(closeBound)
	defer bound.Stop()
	select {
	case <-done:
	case <-bound.C:
	}
	c.network.close() // the client then gives up, within a second
}

// events carries events from the client's goroutines, which must not wait, to handleAll.
// It loses none: the client's own channel does when it is full.
type events struct {
	more chan struct{}

	mu    sync.Mutex
	queue []zk.Event
}

func (e *events) add(ev zk.Event) {
	e.mu.Lock()
	e.queue = append(e.queue, ev)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (e *events) take() []zk.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	queue := e.queue
	e.queue = nil
	return queue
}

// handleAll handles the events of a connection that was opened here.
func (c *Conn) handleAll(ctx context.Context) {
	for {
		select {
		case <-c.queue.more:
			for _, ev := range c.queue.take() {
				c.handle(ev)
			}
		case <-ctx.Done():
			return
		}
	}
}

// listen handles the events of a user's connection until it is closed.
func (c *Conn) listen(ctx context.Context) {
	for {
		select {
		case ev, ok := <-c.events:
			if !ok {
				c.noteClosed()
				return
			}
			c.observe(ev)
			c.handle(ev)
		case <-ctx.Done():
			return
		}
	}
}

// handle handles one event.
func (c *Conn) handle(ev zk.Event) {
	switch ev.Type {
	case zk.EventSession:
		if s := c.Session(); s != nil && ev.State == zk.StateHasSession && c.zk.State() == ev.State {
			s.timeout.Store(int64(c.granted()))
		}
	case zk.EventNotWatching:
		c.Session()
	}
	c.event(ev)
}

// noteClosed is called when a user's connection was closed: its session ends with it.
func (c *Conn) noteClosed() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.Session()
	c.wake()
}

func (c *Conn) connectionClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// clientLogger is what the client logs to.
type clientLogger struct{ to *slog.Logger }

func (l clientLogger) Printf(format string, args ...any) {
	if l.to != nil {
		l.to.Info(fmt.Sprintf(format, args...))
	}
}

// login is the authentication of a connection, which has to come before anything else.
// The client repeats it by itself once it has succeeded.
type login struct {
	busy chan struct{} // held by who logs in
	done atomic.Bool
}

// logIn authenticates the connection unless that is done, or is not needed.
func (c *Conn) logIn(ctx context.Context) error {
	l := &c.login
	if c.options.Credentials == "" || l.done.Load() {
		return nil
	}
	select {
	case l.busy <- struct{}{}:
		defer func() { <-l.busy }()
	case <-ctx.Done():
		return c.Ended(ctx)
	case <-c.life.Done():
		return driver.ErrClosed
	}
	if l.done.Load() {
		return nil
	}
	_, err := c.send(ctx, func(*answer) error { return c.zk.AddAuth("digest", []byte(c.options.Credentials)) })
	l.done.Store(err == nil)
	return err
}

// Name is what the connection is to: its servers or, of a user's connection, the one that
// it is on.
func (c *Conn) Name() string {
	if c.network != nil {
		return strings.Join(c.options.Servers, ",")
	}
	return c.zk.Server()
}

// ServerVersion asks the server that the session is on for "srvr", one of its four-letter
// words, over a connection of its own without TLS.
func (c *Conn) ServerVersion(ctx context.Context) (string, error) {
	if err := c.connected(ctx); err != nil {
		return "", err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.zk.Server())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, 1<<16))
	_, after, ok := strings.Cut(string(text), "Zookeeper version: ")
	if !ok {
		return "", errors.Join(errors.New(`the server does not answer "srvr" (4lw.commands.whitelist)`), err)
	}
	version, _, _ := strings.Cut(after, "-") // 3.8.0-…, built on …
	return "ZooKeeper " + version, nil
}
