package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

const (
	defaultPrefix  = "locker"
	defaultSession = 10 * time.Second
)

// Driver keeps locks in a ZooKeeper. All its tickets live as long as the one session of
// its connection.
type Driver struct {
	conn  *zk.Conn
	owned bool // the driver has opened conn
	name  string
	base  string // the node below which everything is
	acl   []zk.ACL
	asked time.Duration // session timeout, while it is not known
	login *login        // nil: none needed

	version  string // of the protocol
	protocol *protocol.Check
	logger   *slog.Logger // of the client; nil: it logs nothing
	forward  func(zk.Event)
	lost     func(driver.Hold, error)

	closing    chan struct{}
	ending     sync.Once
	work       sync.WaitGroup // background goroutines
	connection *connection    // of conn, if it is the driver's own; else nil
	listings   listings
	watches    watches
	reconnects reconnects
	granted    granted
	sweeper    *time.Timer

	mu       sync.Mutex
	sess     *session // nil: none at present
	over     bool     // conn was closed
	tickets  map[string]*ticket
	occupied map[string]struct{} // parents that were not empty when last seen; a hint
	tasks    tasks
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Lister       = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.LossNotifier = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
	_ fmt.Stringer        = (*Driver)(nil)
)

// A ticket is one that this driver has in a queue. Driver.mu guards what is not
// constant.
type ticket struct {
	hold driver.Hold
	path string
	sess *session

	held      bool
	gone      chan struct{}   // of a waiter: closed when its node was deleted
	since     time.Time       // when it was held, or began to wait
	until     time.Time       // end of a fixed lease
	kept      time.Time       // end of the minimum hold
	watch     <-chan zk.Event // on the ticket's own node; nil: not yet
	watchedOn uint64          // the connection on which watch was set
	queued    bool            // to be watched
}

// An Option changes what New makes.
type Option func(*Driver) error

// WithPrefix sets the node below which the locks are kept, such as "locker" (the
// default) or "/services/locker". It is created if it is not there.
func WithPrefix(path string) Option {
	return func(d *Driver) error {
		base, err := cleanPath(path)
		if err != nil {
			return fmt.Errorf("prefix: %w", err)
		}
		if base == "" || base == "/zookeeper" || strings.HasPrefix(base, "/zookeeper/") {
			return fmt.Errorf("prefix %q: want the path of a node of its own, such as %q", path, defaultPrefix)
		}
		d.base = base
		return nil
	}
}

// WithACL sets who may do what with the nodes that the driver creates. Whoever uses the
// same locks needs all permissions. The default is everybody; or, for a driver opened by
// a URL with a user, that user.
func WithACL(acl ...zk.ACL) Option {
	return func(d *Driver) error {
		if len(acl) == 0 {
			return errors.New("an ACL without entries lets nobody in: want at least one")
		}
		d.acl = acl
		return nil
	}
}

// WithEvents passes every event of the connection on to handle, from one goroutine,
// after the driver has handled it. It must return soon.
func WithEvents(handle func(zk.Event)) Option {
	return func(d *Driver) error {
		d.forward = handle
		return nil
	}
}

// WithLogger has the client of a driver that [Open] makes log there what it does; unless
// set it logs nothing, since errors are returned. New refuses it: a connection that is
// there already has a logger of its own (zk.WithLogger).
func WithLogger(l *slog.Logger) Option {
	return func(d *Driver) error {
		d.logger = l
		return nil
	}
}

// New makes a driver on a connection that the user has, and never closes it. The driver
// reads the connection's events: the channel that zk.Connect has returned with it, which
// has one reader only (see [WithEvents]). Events may be nil; then a loss is noticed
// later, at the next request.
//
// All locks of the driver live as long as the session of the connection, so that its
// timeout is the time in which the lock of a crashed holder is passed on. For the first
// answer of a server that hangs with its port open the client waits for nearly seven
// sessions, unless zk.Connect was given a dialer (zk.WithDialer) whose connections put a
// shorter bound on it, as URLs have.
func New(conn *zk.Conn, events <-chan zk.Event, opts ...Option) (*Driver, error) {
	if conn == nil {
		return nil, errors.New("zookeeper: New needs a connection (*zk.Conn), got nil")
	}
	d, err := prepare(opts)
	if err != nil {
		return nil, err
	}
	if d.logger != nil {
		return nil, errors.New("zookeeper: New: WithLogger is for Open: the connection has a logger of its own")
	}
	field, err := timeoutField(conn)
	if err != nil {
		return nil, err
	}
	d.granted = granted{field: field}
	d.start(conn, events)
	return d, nil
}

// prepare makes a driver without a connection.
func prepare(opts []Option) (*Driver, error) {
	d := &Driver{
		asked: defaultSession, version: version,
		base: "/" + defaultPrefix, acl: zk.WorldACL(zk.PermAll), name: "zookeeper",
		closing: make(chan struct{}),
		tickets: make(map[string]*ticket), occupied: make(map[string]struct{}),
	}
	d.listings.queues = make(map[string]*listing)
	d.watches.nodes = make(map[string]watch)
	d.tasks.orphans = make(map[string]orphan)
	d.tasks.empty = make(map[string]struct{})
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(d); err != nil {
			return nil, fmt.Errorf("zookeeper: %w", err)
		}
	}
	d.protocol = newCheck(d.base, d.version)
	return d, nil
}

// start begins to use a connection.
func (d *Driver) start(conn *zk.Conn, events <-chan zk.Event) {
	d.conn = conn
	d.reconnects.unknown = events == nil && !d.owned
	if events != nil {
		d.work.Go(func() { d.listen(events) })
	}
	d.session() // if there is one already, its timeout is known from now on
	d.sweepAfter(sweepFirst)
}

// String names the store.
func (d *Driver) String() string {
	if d.owned {
		return d.name
	}
	if at := d.conn.Server(); at != "" {
		return "zookeeper " + at + d.base
	}
	return "zookeeper " + d.base
}

// Bounds implements driver.Bounder. A lease is as long as the session, whatever its TTL:
// the core ends a shorter one, and when its process has died the session does. The leader
// learns of the last heartbeat up to half a tick late, and ends expired sessions once
// a tick; a tick is half a session at most.
func (d *Driver) Bounds(time.Duration) driver.Bounds {
	timeout := d.timeout()
	crash := timeout + 3*timeout/4 + time.Second
	return driver.Bounds{MinTTL: time.Millisecond, MaxTTL: leaseOf(timeout), Crash: crash, Liveness: crash}
}

// timeout is the session's: what the server has granted or, before there has been a
// session, what was asked for.
func (d *Driver) timeout() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sess != nil {
		return time.Duration(d.sess.timeout.Load())
	}
	return d.asked
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(lost func(driver.Hold, error)) { d.lost = lost }

// closeBound is how long Close waits for the server to confirm the end of the session.
const closeBound = 100 * time.Millisecond

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.ending.Do(func() {
		close(d.closing)
		d.mu.Lock()
		d.tasks.closed = true
		d.sweeper.Stop()
		keep := d.hasMinHold(time.Now())
		d.mu.Unlock()
		if d.owned {
			d.disconnect(keep)
		}
		d.work.Wait()
	})
	return nil
}

// hasMinHold reports whether a ticket has to stay when the driver is closed. With mu
// held.
func (d *Driver) hasMinHold(now time.Time) bool {
	for _, t := range d.tickets {
		if t.held && t.kept.After(now) {
			return true
		}
	}
	return false
}

// disconnect closes the connection that the driver has opened. With keep the session is
// not ended: it lives on until it times out, and its tickets with it.
func (d *Driver) disconnect(keep bool) {
	if keep || d.conn.State() != zk.StateHasSession {
		d.connection.close()
	}
	done := make(chan struct{})
	go func() {
		d.conn.Close()
		close(done)
	}()
	bound := time.NewTimer(closeBound)
	defer bound.Stop()
	select {
	case <-done:
	case <-bound.C:
	}
	d.connection.close() // the client then gives up, within a second
}

// ready fails early what cannot work, and logs in.
func (d *Driver) ready(ctx context.Context) error {
	select {
	case <-d.closing:
		return driver.ErrClosed
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d.connectionClosed() {
		return errClosedConn
	}
	return d.logIn(ctx)
}
