package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
)

var (
	errNotConnected = errors.New("there is no connection to a server of NATS")
	errDisconnected = errors.New("the connection to the server of NATS has ended")
	errNoJetStream  = errors.New("JetStream does not answer: start nats-server with -js, and allow this user to use it")
)

// client is the connection and, while the connection lasts, the bucket.
type client struct {
	o     options
	given *natsgo.Conn // nil: the client makes its own
	names names

	life    *life.Life
	opening life.Shared[*session]

	watch sync.Once // starts watchOver of the given connection

	mu      sync.Mutex // never held over a call of a connection
	own     *natsgo.Conn
	current *session
	eras    uint64
}

// session is the bucket as it was found on one connection. It lasts as long as both do.
type session struct {
	nc      *natsgo.Conn
	js      jetstream.JetStream
	names   names
	timeout time.Duration
	largest int    // value
	era     uint64 // which session of the client it is

	reconnects uint64 // of the connection, when the session began

	once sync.Once
	dead chan struct{} // closed when it has ended

	mu       sync.Mutex
	measured time.Time // when the following were read
	limited  bool      // the bucket has a limit
	used     float64   // what it has, as a part of what it takes
}

func newClient(nc *natsgo.Conn, o options) *client {
	return &client{o: o, given: nc, names: names{o.bucket, o.prefix}, life: life.New()}
}

// closeBound is how long close waits for the connection. Other calls may hold the connection's mutex, also calls of
// the program itself.
const closeBound = 40 * time.Millisecond

func (c *client) close() {
	c.life.End() // closes the connection to the server, if the client has made it
	c.mu.Lock()
	own, s := c.own, c.current
	c.mu.Unlock()
	if s != nil {
		s.end()
	}
	life.Ending(func() {
		if own != nil {
			own.Close()
		}
		c.life.Wait()
	})(closeBound) // the rest ends when the connection answers, or is closed
}

// connect returns the session, and makes one if necessary.
func (c *client) connect(ctx context.Context) (*session, error) {
	if s := c.session(); s != nil {
		return s, nil
	}
	return c.opening.Get(ctx, c.life, c.open)
}

// open makes a session once.
func (c *client) open() (*session, error) {
	if s := c.session(); s != nil { // somebody else was faster
		return s, nil
	}
	s, err := c.begin()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.eras++
	s.era = c.eras
	c.current = s
	c.mu.Unlock()
	c.session() // its connection may have been lost before it was stored
	return s, nil
}

// begin connects, and finds or makes the bucket.
func (c *client) begin() (*session, error) {
	nc, err := c.reach()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s := &session{nc: nc, js: js, names: c.names, timeout: c.o.timeout, reconnects: nc.Stats().Reconnects, dead: make(chan struct{})}
	ctx, cancel := context.WithTimeout(c.life, c.o.timeout)
	defer cancel()
	info, err := c.bucket(ctx, s)
	if err != nil {
		return nil, err
	}
	s.largest = largest(nc.MaxPayload(), info.Config.MaxMsgSize)
	s.measure(info)
	return s, nil
}

// watchOver ends the session on a connection when the connection is lost. It runs once for a connection, and not for
// each session, because the connection has no safe way to remove the channels on which it reports events. It drops an
// event that comes before the last one was received, so each request checks the session too.
func (c *client) watchOver(nc *natsgo.Conn) {
	lost, closed := nc.StatusChanged(natsgo.RECONNECTING), nc.StatusChanged(natsgo.CLOSED)
	c.life.Go(func() {
		for !nc.IsClosed() {
			select {
			case <-lost:
			case <-closed:
			case <-c.life.Done():
				return
			}
			c.session()
		}
	})
}

// session returns the current session. If its connection was lost, even if that has come back, it ends the session and
// returns nil. It is not called with mu held: the connection may keep its own mutex for seconds.
func (c *client) session() *session {
	c.mu.Lock()
	s := c.current
	c.mu.Unlock()
	switch {
	case s == nil:
		return nil
	case !s.alive():
		s.end()
		return nil
	}
	return s
}

func (s *session) end() { s.once.Do(func() { close(s.dead) }) }

func (s *session) alive() bool {
	select {
	case <-s.dead:
		return false
	default:
		return s.nc.IsConnected() && s.nc.Stats().Reconnects == s.reconnects
	}
}

// reach returns a connection that works.
func (c *client) reach() (*natsgo.Conn, error) {
	if nc := c.given; nc != nil {
		c.watch.Do(func() { c.watchOver(nc) })
		if !nc.IsConnected() {
			return nil, driver.Unavailable(errors.Join(errNotConnected, nc.LastError()))
		}
		return nc, nil
	}
	c.mu.Lock()
	nc := c.own
	c.mu.Unlock()
	if nc != nil && nc.IsConnected() {
		return nc, nil
	}
	nc, err := c.dial()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.own = nc
	c.mu.Unlock()
	if c.life.Closed() {
		nc.Close()
		return nil, driver.ErrClosed
	}
	c.watchOver(nc)
	return nc, nil
}

// dial connects to one of the servers. When a connection has ended, the next request makes another, and so can report
// why there is none.
func (c *client) dial() (*natsgo.Conn, error) {
	d := &dialer{ctx: c.life, timeout: c.o.dialTimeout}
	opts := append([]natsgo.Option{
		natsgo.Name("locker"), natsgo.NoReconnect(), natsgo.SkipHostLookup(), natsgo.SetCustomDialer(d),
		natsgo.Timeout(c.o.dialTimeout), natsgo.PingInterval(c.o.timeout / 2), natsgo.MaxPingsOutstanding(2), natsgo.FlusherTimeout(c.o.timeout),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}), // the default prints errors to standard error
	}, c.o.connection...)
	nc, err := natsgo.Connect("nats://"+strings.Join(c.o.servers, ",nats://"), opts...)
	switch {
	case err == nil:
		return nc, nil
	case refused(err):
		return nil, err
	case errors.Is(err, natsgo.ErrNoServers) && d.err != nil:
		err = d.err // says why
	}
	return nil, driver.Unavailable(err)
}

// dialer connects while the client is open.
type dialer struct {
	ctx     context.Context
	timeout time.Duration
	err     error // of the last attempt
}

// Dial implements natsgo.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	nc, err := (&net.Dialer{Timeout: d.timeout}).DialContext(d.ctx, network, address)
	if err != nil {
		d.err = err
		return nil, err
	}
	if l, ok := nc.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0) // after Close, the system does not go on sending what was not acknowledged
	}
	return &conn{nc, context.AfterFunc(d.ctx, func() { _ = nc.Close() })}, nil
}

// conn is a connection that ends with its client, even before the server has greeted it.
type conn struct {
	net.Conn

	stop func() bool
}

func (c *conn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// bucket returns what the servers say of the bucket, which it makes if there is none.
func (c *client) bucket(ctx context.Context, s *session) (*jetstream.StreamInfo, error) {
	if err := checkVersion(s.nc.ConnectedServerVersion()); err != nil {
		return nil, err
	}
	subject := c.names.api("INFO")
	stream, err := s.js.Stream(ctx, c.names.stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		subject = c.names.api("CREATE")
		stream, err = c.create(ctx, s)
	}
	switch {
	case errors.Is(err, natsgo.ErrNoResponders):
		return nil, driver.Unavailable(errNoJetStream)
	case err != nil:
		return nil, s.failed(ctx, c.life, err, subject)
	}
	info := stream.CachedInfo()
	if err := c.names.check(&info.Config, c.o.replicas); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", c.o.bucket, err)
	}
	return info, nil
}

// create makes the bucket, unless another process is faster.
func (c *client) create(ctx context.Context, s *session) (jetstream.Stream, error) {
	replicas := max(c.o.replicas, 1)
	if c.o.replicas == 0 && s.nc.ConnectedClusterName() != "" {
		replicas = 3
	}
	stream, err := s.js.CreateStream(ctx, c.names.config(replicas, time.Now()))
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return s.js.Stream(ctx, c.names.stream())
	}
	return stream, err
}
