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
	lost     func(driver.Hold, error) // nil if nobody wants notifications

	// mu guards what follows, and the fields of tickets. It is not held during a request.
	mu       sync.Mutex
	closed   bool                // no more grants
	tickets  map[string]*ticket  // by ID
	turns    map[string]*turn    // of queues by parent, of tickets by ticketKey
	listings map[string]*listing // by parent: the latest that has not ended
	occupied map[string]struct{} // parents that were not empty when last seen; a hint
	// creates has, by ID, the creates of tickets of which it is not known what has become of
	// them. The channel is closed when that can be found out.
	creates  map[string]<-chan struct{}
	watching bool // a background task watches the nodes of tickets
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

// A ticket is a ticket of this driver in a queue. Driver.mu guards the fields that
// change.
type ticket struct {
	hold driver.Hold
	path string
	sess *zkconn.Session

	held    bool
	leaving bool          // its release was asked for, or a loss was reported, so its end is no loss
	gone    chan struct{} // of a waiter: closed when the driver forgets the ticket, as at the end of its session
	most    time.Duration // Grant.TTL: the holder counts on no longer lease, whatever it asks for
	lease   time.Duration // the longest that it counts on so far
	until   time.Time     // end of a fixed lease
	kept    time.Time     // end of the minimum hold
	watch   zkconn.Watch  // on the ticket's own node; zero if not yet
	since   time.Time     // it is watched watchDelay after this
	seen    uint64        // the connection on which the node was last looked for
}

// An Option changes what New makes.
type Option func(*options) error

type options struct {
	base    string // the node below which all nodes are
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

// WithACL sets the ACL of the nodes that the driver creates. All users of the same locks
// need all permissions. The default is everybody or, for a driver opened by a URL with a
// user, that user.
func WithACL(acl ...zk.ACL) Option {
	return func(o *options) error {
		if len(acl) == 0 {
			return errors.New("an ACL without entries lets nobody in: want at least one")
		}
		o.acl = acl
		return nil
	}
}

// WithEvents passes every event of the connection that [New] is given on to handle, from one
// goroutine, after the driver has handled it. It must return soon. Open refuses it, because
// nobody else uses the connection that Open makes.
func WithEvents(handle func(zk.Event)) Option {
	return func(o *options) error {
		o.forward = handle
		return nil
	}
}

// WithLogger sets the logger of the client that [Open] makes. Without it the client logs
// nothing, since errors are returned. New refuses it, because the connection that it is
// given has a logger of its own (zk.WithLogger).
func WithLogger(l *slog.Logger) Option {
	return func(o *options) error {
		o.logger = l
		return nil
	}
}

// New makes a driver on a user's connection, and never closes the connection. The driver
// reads the connection's events: the channel that zk.Connect has returned with it. No
// one else may read it (see [WithEvents]).
//
// All locks of the driver live as long as the session of the connection, so the lock of
// a crashed holder passes on about a session timeout later. If Close cannot release what is
// held, since no server answers, that stays locked until the connection, too, is closed, or
// the process ends. If a server hangs with its
// port open, the client waits for its first answer for nearly seven sessions, unless
// zk.Connect was given a dialer (zk.WithDialer) whose connections have a shorter bound,
// like those of a driver opened by URL.
func New(conn *zk.Conn, events <-chan zk.Event, opts ...Option) (*Driver, error) {
	if conn == nil {
		return nil, errors.New("zookeeper: New needs a connection (*zk.Conn), got nil")
	}
	if events == nil {
		return nil, errors.New("zookeeper: New needs the connection's events, the channel that zk.Connect has returned with it, got nil")
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
		turns:    make(map[string]*turn),
		listings: make(map[string]*listing),
		occupied: make(map[string]struct{}),
		creates:  make(map[string]<-chan struct{}),
	}
	conn.Start(d.sessionOver, d.handle)
	conn.Go(d.sweepAll)
	return d
}

// String names the store.
func (d *Driver) String() string { return "zookeeper " + d.conn.Name() + d.base }

// Bounds implements driver.Bounder. In the store a ticket lasts as long as the session,
// whatever its TTL: the core ends a shorter one while its process lives. The leader
// learns of the last heartbeat up to half a tick late, and ends expired sessions once
// a tick; a tick is half a session at most.
func (d *Driver) Bounds(time.Duration) driver.Bounds {
	timeout := d.conn.Timeout()
	crash := timeout + 3*timeout/4 + time.Second
	return driver.Bounds{MinTTL: time.Millisecond, MaxTTL: zkconn.Lease(timeout), Crash: crash, Liveness: crash}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(lost func(driver.Hold, error)) { d.lost = lost }

// Close implements driver.Driver. It ends the session if the driver has opened the
// connection, unless a ticket must stay because of its minimum hold.
func (d *Driver) Close() error {
	keep := false
	now := time.Now()
	d.mu.Lock()
	d.closed = true
	for _, t := range d.tickets {
		keep = keep || t.held && t.kept.After(now)
	}
	d.mu.Unlock()
	d.conn.Close(keep)
	return nil
}

// handle handles an event of the connection.
func (d *Driver) handle(ev zk.Event) {
	d.changed(ev)
	if ev.Type == zk.EventSession && ev.State == zk.StateHasSession {
		d.loseLongLeases()
	}
	if d.forward != nil {
		d.forward(ev)
	}
}

// agree makes sure, once, that all users of these locks keep them in the same way. With
// write it writes how, if nobody has yet.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) { return d.readVersion(ctx, write) })
}

// final reports whether another try after err would not help.
func final(err error) bool {
	return zkconn.Answered(err) || errors.As(err, new(*protocol.Mismatch)) ||
		errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrUnsupported) ||
		errors.Is(err, driver.ErrNotAcquired)
}

// pauseAfter waits until it is time to try again after err. If there is no other try, since err is final or the bound has
// passed (zero: none), or ctx or the driver has ended, it returns the error of the call.
func (d *Driver) pauseAfter(ctx context.Context, err error, pause *retry.Backoff, bound time.Time) error {
	switch {
	case final(err), !bound.IsZero() && time.Now().After(bound):
		return err
	case retry.Sleep(ctx, pause.Next(), d.conn.Closed()):
		return nil
	case ctx.Err() == nil:
		return driver.ErrClosed
	case errors.Is(err, context.Cause(ctx)):
		return err
	}
	return errors.Join(context.Cause(ctx), err)
}

// Times of requests.
const (
	// enqueueBound is for how long the driver tries to queue a ticket while no server
	// answers: an ensemble that has lost its leader has a new one by then.
	enqueueBound = 5 * time.Second
	taskBound    = 10 * time.Second // one request of a background task
	taskPause    = time.Second      // between two tries of a background task
)

// newBackoff returns the pauses between tries of a request.
func newBackoff() retry.Backoff {
	return retry.Backoff{First: 20 * time.Millisecond, Most: time.Second}
}

// each calls ask for every item, many at once, and returns the answers in order, and one of
// the errors: they are much the same.
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
	for _, err := range errs {
		if err != nil {
			return answers, err
		}
	}
	return answers, nil
}
