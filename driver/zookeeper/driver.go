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
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
	"github.com/lockerproject/locker/internal/retry"
)

const (
	defaultPrefix  = "locker"
	defaultSession = 10 * time.Second
)

// Driver keeps locks in a ZooKeeper. All its tickets live as long as the one session of
// its connection.
type Driver struct {
	options
	conn     *zkconn.Conn
	protocol *protocol.Check
	lost     func(driver.Hold, error) // nil: nobody wants to be told
	listings listings

	// mu guards what follows, and the fields of tickets. It is never held over a request.
	mu        sync.Mutex
	tickets   map[string]*ticket  // by ID
	occupied  map[string]struct{} // parents that were not empty when last seen; a hint
	orphans   map[string]orphan   // by ID
	searching bool                // for orphans
	young     []*ticket           // to be watched, but not yet
	due       []*ticket           // to be watched
	watching  bool                // … by a background task
}

var (
	_ driver.Driver          = (*Driver)(nil)
	_ driver.BatchRenewer    = (*Driver)(nil)
	_ driver.Lister          = (*Driver)(nil)
	_ driver.Breaker         = (*Driver)(nil)
	_ driver.LossNotifier    = (*Driver)(nil)
	_ driver.Bounder         = (*Driver)(nil)
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// A ticket is one that this driver has in a queue. Driver.mu guards what is not
// constant.
type ticket struct {
	hold driver.Hold
	path string
	sess *zkconn.Session

	held   bool
	gone   chan struct{} // of a waiter: closed when the ticket is taken off the books
	until  time.Time     // end of a fixed lease
	kept   time.Time     // end of the minimum hold
	watch  zkconn.Watch  // on the ticket's own node; zero: not yet
	queued bool          // to be watched
}

// An Option changes what New makes.
type Option func(*options) error

type options struct {
	base    string // the node below which everything is
	acl     []zk.ACL
	logger  *slog.Logger // of the client
	forward func(zk.Event)
	version string // of the protocol
}

// WithPrefix sets the node below which the locks are kept, such as "locker" (the
// default) or "/services/locker". It is created if it is not there.
func WithPrefix(path string) Option {
	return func(o *options) error {
		base, err := cleanPath(path)
		if err != nil {
			return fmt.Errorf("prefix: %w", err)
		}
		if base == "" || base == "/zookeeper" || strings.HasPrefix(base, "/zookeeper/") {
			return fmt.Errorf("prefix %q: want the path of a node of its own, such as %q", path, defaultPrefix)
		}
		o.base = base
		return nil
	}
}

// WithACL sets who may do what with the nodes that the driver creates. Whoever uses the
// same locks needs all permissions. The default is everybody; or, for a driver opened by
// a URL with a user, that user.
func WithACL(acl ...zk.ACL) Option {
	return func(o *options) error {
		if len(acl) == 0 {
			return errors.New("an ACL without entries lets nobody in: want at least one")
		}
		o.acl = acl
		return nil
	}
}

// WithEvents passes every event of the connection on to handle, from one goroutine,
// after the driver has handled it. It must return soon.
func WithEvents(handle func(zk.Event)) Option {
	return func(o *options) error {
		o.forward = handle
		return nil
	}
}

// WithLogger has the client of a driver that [Open] makes log there what it does; unless
// set it logs nothing, since errors are returned. New refuses it: a connection that is
// there already has a logger of its own (zk.WithLogger).
func WithLogger(l *slog.Logger) Option {
	return func(o *options) error {
		o.logger = l
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
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.logger != nil {
		return nil, errors.New("zookeeper: New: WithLogger is for Open: the connection has a logger of its own")
	}
	c, err := zkconn.Adopt(conn, events, zkconn.Options{Base: o.base, Session: defaultSession})
	if err != nil {
		return nil, err
	}
	return newDriver(c, o), nil
}

func newOptions(opts []Option) (options, error) {
	o := options{base: "/" + defaultPrefix, acl: zk.WorldACL(zk.PermAll), version: version}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&o); err != nil {
			return o, fmt.Errorf("zookeeper: %w", err)
		}
	}
	return o, nil
}

func newDriver(conn *zkconn.Conn, o options) *Driver {
	d := &Driver{
		options: o, conn: conn,
		protocol: protocol.New(o.version, "the node "+o.base+"/"+protocolNode, "delete that node"),
		tickets:  make(map[string]*ticket),
		occupied: make(map[string]struct{}),
		orphans:  make(map[string]orphan),
	}
	d.listings.queues = make(map[string]*listing)
	conn.Start(d.sessionOver, d.handle)
	conn.Go(d.sweepAll)
	return d
}

// String names the store.
func (d *Driver) String() string { return "zookeeper " + d.conn.Name() + d.base }

// Bounds implements driver.Bounder. A lease is as long as the session, whatever its TTL:
// the core ends a shorter one, and when its process has died the session does. The leader
// learns of the last heartbeat up to half a tick late, and ends expired sessions once
// a tick; a tick is half a session at most.
func (d *Driver) Bounds(time.Duration) driver.Bounds {
	timeout := d.conn.Timeout()
	crash := timeout + 3*timeout/4 + time.Second
	return driver.Bounds{MinTTL: time.Millisecond, MaxTTL: zkconn.Lease(timeout), Crash: crash, Liveness: crash}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(lost func(driver.Hold, error)) { d.lost = lost }

// Close implements driver.Driver. It ends the session of a connection of its own, unless
// a ticket has to stay because of its minimum hold.
func (d *Driver) Close() error {
	keep := false
	now := time.Now()
	d.mu.Lock()
	for _, t := range d.tickets {
		keep = keep || t.held && t.kept.After(now)
	}
	d.mu.Unlock()
	d.conn.Close(keep)
	return nil
}

// handle handles an event of the connection.
func (d *Driver) handle(ev zk.Event) {
	if ev.Type == zk.EventNodeDeleted || ev.Type == zk.EventNodeDataChanged {
		d.changed(ev)
	}
	if d.forward != nil {
		d.forward(ev)
	}
}

// agree makes sure, once, that all who use these locks keep them in the same way. With
// write it says how, where nobody has said so yet.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) { return d.readVersion(ctx, write) })
}

// final reports whether err will not get better by waiting.
func final(err error) bool {
	return zkconn.Answered(err) || errors.As(err, new(*protocol.Mismatch)) || errors.Is(err, zk.ErrClosing) ||
		errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrLost)
}

// Times of requests.
const (
	// enqueueBound is how long a ticket that is not queued yet is tried for while no
	// server answers: an ensemble that has lost its leader has a new one by then.
	enqueueBound = 5 * time.Second
	taskBound    = 10 * time.Second // one request of a background task
	taskPause    = time.Second      // between two tries of a background task
)

// newBackoff is the pauses between tries of a request.
func newBackoff() retry.Backoff {
	return retry.Backoff{First: 20 * time.Millisecond, Most: time.Second}
}

// each asks about every item, many at once, and returns the answers in order.
func each[T, R any](items []T, ask func(T) (R, error)) ([]R, error) {
	const atOnce = 32
	answers, errs := make([]R, len(items)), make([]error, len(items))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			answers[i], errs[i] = ask(item)
		})
	}
	group.Wait()
	return answers, errors.Join(errs...)
}
