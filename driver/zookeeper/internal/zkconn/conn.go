// Package zkconn is a connection to ZooKeeper with one session, over
// github.com/go-zookeeper/zk, which is called the client below. In addition to the
// client,
//
//   - requests take contexts, are never queued to be sent later, and fail with the
//     reason why no server answers;
//   - it says how long the session is sure to last, and reports its end;
//   - watches are shared, and say whether they still hold after the client has
//     reconnected;
//   - it leaves a server that hangs for another, if there are several.
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
	"github.com/lockerproject/locker/driver/internal/life"
)

// Conn is a connection. Make it with [Open] or [Adopt], and then call Start.
type Conn struct {
	zk      *zk.Conn
	network *network // nil for a user's connection
	options Options
	timeout reflect.Value // see timeoutField

	events  <-chan zk.Event // of a user's connection
	ended   func(*Session)
	event   func(zk.Event)
	login   life.Shared[struct{}]
	watches watches
	count   atomic.Uint64 // how often the connection's state has changed
	allowed atomic.Bool   // the connection is authenticated: the client then repeats that by itself
	life    *life.Life

	mu         sync.Mutex
	sess       *Session      // nil if there is none at present
	userClosed bool          // a user's connection was closed
	again      chan struct{} // closed when there is a session again; nil if nobody waits
}

// Options are what a connection is made with.
type Options struct {
	// Base is the node that requests name to find out whether the session lives.
	Base string
	// Session is the timeout that Open asks for. Timeout returns it while there is no
	// session.
	Session time.Duration

	// What follows is for Open.

	Servers     []string      // host:port
	TLS         *tls.Config   // nil: without TLS
	Dial        time.Duration // bound for a connection to be made
	Credentials string        // user:password; "" for none
	Logger      *slog.Logger  // of the client; if nil it logs nothing, since errors are returned
}

// Open makes a connection. It waits for no server.
func Open(o Options) (*Conn, error) {
	return open(newNetwork(o.Servers, o.TLS, o.Dial, o.Session), o)
}

func open(n *network, o Options) (*Conn, error) {
	if _, err := timeoutField(new(zk.Conn)); err != nil {
		return nil, err
	}
	c := newConn(o, n.life)
	c.network = n
	conn, _, err := zk.Connect(o.Servers, o.Session,
		zk.WithLogger(clientLogger{o.Logger}), zk.WithLogInfo(o.Logger != nil), zk.WithHostProvider(n.hosts), zk.WithDialer(n.dial),
		zk.WithEventCallback(func(ev zk.Event) {
			if ev.Type == zk.EventSession && ev.State == zk.StateHasSession {
				n.hasSession()
			}
			c.observe(ev)
			if !c.life.Closed() {
				c.handle(ev)
			}
		}))
	if err != nil {
		return nil, err
	}
	c.zk = conn
	c.timeout, err = timeoutField(conn)
	return c, err
}

// Adopt takes a user's connection, with its events. Close leaves it open.
func Adopt(conn *zk.Conn, events <-chan zk.Event, o Options) (*Conn, error) {
	field, err := timeoutField(conn)
	if err != nil {
		return nil, err
	}
	c := newConn(o, life.New())
	c.zk, c.events, c.timeout = conn, events, field
	return c, nil
}

func newConn(o Options, l *life.Life) *Conn {
	return &Conn{options: o, watches: watches{set: make(map[string]Watch)}, life: l}
}

// Start begins to connect, or to handle the events of a user's connection. It sets ended,
// which is called when a session has ended, and event, which is called with each event after
// it was handled. Start, Session, Close and the methods that send requests may call ended:
// their caller must not hold a lock that ended takes. On a connection that Open made, the
// client waits for both, so they must not wait for it.
func (c *Conn) Start(ended func(*Session), event func(zk.Event)) {
	c.ended, c.event = ended, event
	if c.Own() {
		close(c.network.hosts.start)
		return
	}
	c.Go(c.listen)
	c.Session() // there may be one already
}

// Go runs a background task. Close ends its ctx, and waits for the task. Go reports false
// after Close.
func (c *Conn) Go(task func(ctx context.Context)) bool {
	return c.life.Go(func() { task(c.life) })
}

// Closed is closed by Close.
func (c *Conn) Closed() <-chan struct{} { return c.life.Done() }

// Own reports whether Open made the connection; otherwise it is the user's.
func (c *Conn) Own() bool { return c.network != nil }

// Close ends all background tasks and, unless the connection is the user's, the session.
// With keep the session lives on until it times out.
func (c *Conn) Close(keep bool) {
	if c.life.End() && c.network != nil {
		c.disconnect(keep)
	}
	c.life.Wait()
}

// closeBound is how long Close waits for the server to confirm the end of the session.
const closeBound = 100 * time.Millisecond

// disconnect closes a connection that Open made.
func (c *Conn) disconnect(keep bool) {
	if keep || c.zk.State() != zk.StateHasSession {
		c.network.close()
	}
	life.Ending(c.zk.Close)(closeBound)
	c.network.close() // the client then gives up, within a second
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
	if ev.Type == zk.EventSession || ev.Type == zk.EventNotWatching {
		c.Session()
	}
	c.event(ev)
}

// noteClosed is called when a user's connection was closed: its session ends with it.
func (c *Conn) noteClosed() {
	c.mu.Lock()
	c.userClosed = true
	c.mu.Unlock()
	c.Session()
	c.wake()
}

func (c *Conn) connectionClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.userClosed
}

// clientLogger is the client's logger.
type clientLogger struct{ to *slog.Logger }

func (l clientLogger) Printf(format string, args ...any) {
	if l.to != nil {
		l.to.Info(fmt.Sprintf(format, args...))
	}
}

// logIn authenticates the connection, which must come before any other request, unless that is
// done, or is not needed.
func (c *Conn) logIn(ctx context.Context) error {
	if c.options.Credentials == "" || c.allowed.Load() {
		return nil
	}
	_, err := c.login.Get(ctx, c.life, func() (none struct{}, err error) {
		if !c.allowed.Load() {
			err = c.zk.AddAuth("digest", []byte(c.options.Credentials))
			c.allowed.Store(err == nil)
		}
		return none, err
	})
	switch {
	case err == nil:
		return nil
	case c.life.Closed():
		return driver.ErrClosed
	case ctx.Err() != nil:
		return c.EndError(ctx)
	}
	return c.explain(err)
}

// Name returns the servers of the connection or, for a user's connection, the server that
// it is connected to.
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
	server := c.zk.Server()
	if conn := c.network.present(); conn != nil {
		server = conn.RemoteAddr().String() // a name may have several addresses
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
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
