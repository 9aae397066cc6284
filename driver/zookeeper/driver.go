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

// Driver keeps locks in a ZooKeeper. All its tickets live and die with the one
// session of its connection.
type Driver struct {
	conn  *zk.Conn
	owned bool // we have opened conn
	name  string
	base  string // the node below which everything is
	acl   []zk.ACL
	asked time.Duration // session timeout, while it is not known
	login *login        // nil: none needed

	version  string // of the protocol
	protocol *protocol.Check
	logger   *slog.Logger // of the client; nil: it logs nothing
	forward  func(zk.Event)
	tell     func(driver.Hold, error)

	closing    chan struct{}
	ending     sync.Once
	work       sync.WaitGroup // background goroutines
	connection *connection    // of conn, if it is our own; else nil
	listings   listings
	watches    watches
	links      links
	granted    granted
	sweeper    *time.Timer

	mu      sync.Mutex
	sess    *session // nil: none at present
	over    bool     // conn was closed
	tickets map[string]*ticket
	crowded map[string]struct{} // parents that were not empty when last seen; a hint
	chores  chores
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

// A ticket is one that this driver has in a line. Driver.mu guards what is not
// constant.
type ticket struct {
	hold driver.Hold
	path string
	sess *session

	held   bool
	gone   chan struct{}   // of a waiter: closed when its node was deleted
	since  time.Time       // when it was held, or began to wait
	until  time.Time       // end of a fixed lease
	kept   time.Time       // end of the minimum hold
	watch  <-chan zk.Event // on the ticket's own node; nil: not yet
	link   uint64          // on which watch was set
	queued bool            // to be watched
}

// An Option changes what New makes.
type Option func(*Driver) error

// WithPrefix sets the node below which the locks are kept, such as "locker"
// (the default) or "/services/locker". It is created if it is not there.
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

// WithACL sets who may do what with the nodes that the driver creates. Whoever
// uses the same locks needs all permissions. The default is everybody; or,
// for a driver opened by a URL with a user, that user.
func WithACL(acl ...zk.ACL) Option {
	return func(d *Driver) error {
		if len(acl) == 0 {
			return errors.New("an ACL without entries lets nobody in: want at least one")
		}
		d.acl = acl
		return nil
	}
}

// WithEvents has every event of the connection passed on to hear, from one
// goroutine, after the driver has seen it. Hear must return soon.
func WithEvents(hear func(zk.Event)) Option {
	return func(d *Driver) error {
		d.forward = hear
		return nil
	}
}

// WithLogger has the client of a driver that [Open] makes log there what it does;
// unless set it logs nothing, since errors are returned. New refuses it: a
// connection that is there already has a logger of its own (zk.WithLogger).
func WithLogger(l *slog.Logger) Option {
	return func(d *Driver) error {
		d.logger = l
		return nil
	}
}

// New makes a driver on a connection that the user has, and never closes it.
// The driver reads the connection's events: what zk.Connect has returned
// with it, which has one reader only (see [WithEvents]). Events may be nil;
// then a loss is told later, when the driver looks.
//
// The session of the connection is the liveness of all locks of the driver, so
// that its timeout is the time in which the lock of a crashed holder is
// passed on. For the first answer of a server that hangs with its port open the
// client waits for nearly seven sessions, unless zk.Connect was given a dialer
// (zk.WithDialer) whose connections put a shorter bound on it, as URLs have.
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
		tickets: make(map[string]*ticket), crowded: make(map[string]struct{}),
	}
	d.listings.lines = make(map[string]*listing)
	d.watches.nodes = make(map[string]watch)
	d.chores.suspects = make(map[string]suspect)
	d.chores.empty = make(map[string]struct{})
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
	d.links.blind = events == nil && !d.owned
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

// Bounds implements driver.Bounder. A lease is as long as the session, whatever
// its TTL: the core ends a shorter one, and when its process has died the
// session does. The leader learns of the last sign of life up to half a tick
// late, and looks for dead sessions once a tick; a tick is half a session at
// most.
func (d *Driver) Bounds(time.Duration) driver.Bounds {
	timeout := d.timeout()
	crash := timeout + 3*timeout/4 + time.Second
	return driver.Bounds{MinTTL: time.Millisecond, MaxTTL: leaseOf(timeout), Crash: crash, Liveness: crash}
}

// timeout is the session's: what the server has granted or, before there has
// been a session, what was asked for.
func (d *Driver) timeout() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sess != nil {
		return time.Duration(d.sess.timeout.Load())
	}
	return d.asked
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(tell func(driver.Hold, error)) { d.tell = tell }

// closeBound is how long Close waits for the server to confirm the end of the
// session.
const closeBound = 100 * time.Millisecond

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.ending.Do(func() {
		close(d.closing)
		d.mu.Lock()
		d.chores.closed = true
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

// disconnect closes the connection that the driver has opened. With keep the
// session is not ended: it lives on until it times out, and its tickets with it.
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
	if d.isOver() {
		return errClosedConn
	}
	return d.logIn(ctx)
}

// cleanPath makes the path of a node: with one slash before every part and
// none behind; "" for the root.
func cleanPath(path string) (string, error) {
	var b strings.Builder
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "":
			continue
		case part == "." || part == "..":
			return "", fmt.Errorf("path %q: a part may not be %q", path, part)
		case strings.ContainsFunc(part, refused):
			return "", fmt.Errorf("path %q: it has a character that ZooKeeper refuses", path)
		}
		b.WriteString("/" + part)
	}
	return b.String(), nil
}

// refused tells what runes ZooKeeper does not take in a path.
func refused(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}
