package consul

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// Times that the server fixes, unless it is configured otherwise.
const (
	minTTL = 10 * time.Second
	maxTTL = 24 * time.Hour
)

// Driver is a driver.Driver on Consul. See the package comment.
type Driver struct {
	store store
	opts  options
	name  string // String

	protocol *protocol.Check

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	last   context.Context // ends when Close waits for nothing any more
	giveUp context.CancelFunc
	work   sync.WaitGroup // whatever runs on the driver's account
	owned  func()         // frees the client that the driver has opened; or nil

	tell func(h driver.Hold, cause error) // of NotifyLoss; or nil

	mu       sync.Mutex
	closed   bool
	entering map[string]*entering // Acquires that create a ticket, by its ID
	classes  map[kind]*class      // of sessions
	sessions map[*session]struct{}
	tickets  map[string]*ticket // that this driver knows of, by ID
	queues   map[string]*queue  // with waiters of this process, by name
	tender   *time.Timer        // of the sessions; or nil
	nextTend time.Time
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

// Option changes how a driver uses Consul. A nil Option changes nothing.
type Option func(*options)

type options struct {
	prefix     string
	datacenter string
	namespace  string
	partition  string
	minTTL     time.Duration
	queryWait  time.Duration
	version    string // of the protocol
}

// WithPrefix sets what all keys begin with; "locker" unless set. Only lockers
// may write below it.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithDatacenter sets the datacenter that keeps the locks; that of the client,
// or else of its agent, unless set. Locks of two datacenters are different locks.
func WithDatacenter(dc string) Option { return func(o *options) { o.datacenter = dc } }

// WithNamespace sets the namespace (Consul Enterprise). Consul's transactions do
// not take it from the client's configuration, so it has to be given here too.
func WithNamespace(ns string) Option { return func(o *options) { o.namespace = ns } }

// WithPartition sets the admin partition (Consul Enterprise), as WithNamespace.
func WithPartition(p string) Option { return func(o *options) { o.partition = p } }

// WithMinTTL tells the shortest TTL that the servers give a session, where
// their session_ttl_min is not Consul's default of 10 s.
func WithMinTTL(d time.Duration) Option { return func(o *options) { o.minTTL = d } }

// WithQueryWait sets how long a blocking query waits on the server; 45 s unless
// set. The server adds up to a sixteenth. It must be shorter than the time after
// which a proxy between the program and the agent closes an idle connection.
func WithQueryWait(d time.Duration) Option { return func(o *options) { o.queryWait = d } }

// New makes a driver that uses client and never closes it. It does not reach
// the server.
//
// The client should keep as many idle connections per host
// (http.Transport.MaxIdleConnsPerHost) as there are callers at once; each costs
// two goroutines. Its http.Client should have
// no Timeout: waiting is done by blocking queries. With TLS it should not use
// HTTP/2 (http.Transport.ForceAttemptHTTP2), where all requests hang on one
// connection when that has died. Without
// compression (http.Transport.DisableCompression) contended locks are faster.
func New(client *api.Client, opts ...Option) (*Driver, error) {
	if client == nil {
		return nil, errors.New("consul: New needs a client, got nil")
	}
	o := options{prefix: "locker", minTTL: minTTL, queryWait: queryWait, version: version}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if err := checkPrefix(o.prefix); err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	if o.minTTL <= 0 || o.minTTL > maxTTL {
		return nil, fmt.Errorf("consul: shortest TTL %v: want more than zero and at most %v", o.minTTL, maxTTL)
	}
	if o.queryWait < time.Second || o.queryWait > maxQueryWait {
		return nil, fmt.Errorf("consul: wait of a blocking query %v: want at least 1s and at most %v", o.queryWait, maxQueryWait)
	}
	d := &Driver{
		store: store{
			requests: requests{client: client, dc: o.datacenter, namespace: o.namespace, partition: o.partition},
			keys:     keyspace{prefix: o.prefix}, wait: o.queryWait, watches: make(chan struct{}, ownWatches),
		},
		opts: o, name: "consul",
		entering: make(map[string]*entering),
		classes:  make(map[kind]*class),
		sessions: make(map[*session]struct{}),
		tickets:  make(map[string]*ticket),
		queues:   make(map[string]*queue),
	}
	d.protocol = newCheck(d.store.keys, o.version)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.last, d.giveUp = context.WithCancel(context.Background())
	d.store.shared = sharedWatch{store: &d.store, ctx: d.ctx, work: &d.work}
	return d, nil
}

// String names the store and, when it was opened by URL, its address.
func (d *Driver) String() string { return d.name }

// Bounds implements driver.Bounder. A server ends a session between one and
// two times its TTL after the last renewal.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	ends := 2*max(ttl, d.opts.minTTL) + time.Second
	return driver.Bounds{MinTTL: d.opts.minTTL, MaxTTL: maxTTL, Crash: ends, Liveness: ends}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(tell func(h driver.Hold, cause error)) { d.tell = tell }

// Close implements driver.Driver. It destroys the driver's sessions, and with
// them whatever is left of its tickets, but for those with a MinHold that is
// not over.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	if d.tender != nil {
		d.tender.Stop()
	}
	left := make([]*session, 0, len(d.sessions))
	now, tickets := time.Now(), 0
	for s := range d.sessions {
		if !s.kept(now) {
			left = append(left, s)
			tickets += len(s.tickets)
		}
	}
	d.mu.Unlock()

	d.cancel()
	defer d.giveUp()
	defer time.AfterFunc(closeBound, d.giveUp).Stop()
	err := d.destroyAll(left)
	d.work.Wait()
	if d.owned != nil {
		d.owned()
	}
	if err == nil || tickets == 0 { // an empty session ends by its TTL, and nobody waits for that
		return nil
	}
	return fmt.Errorf("%d tickets end with their session: %w", tickets, mark(err))
}

// bind makes a context that ends with ctx and, for ErrClosed, with the driver.
func (d *Driver) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// entering is an Acquire that creates a ticket. A Release of the same ticket
// ends it first, so that it creates none after that.
type entering struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// enters is bind for the part of an Acquire that creates the ticket.
func (d *Driver) enters(ctx context.Context, id string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.ctx, func() { cancel(driver.ErrClosed) })
	e := &entering{cancel: cancel, done: make(chan struct{})}
	d.mu.Lock()
	d.entering[id] = e
	d.mu.Unlock()
	return ctx, func() {
		stop()
		cancel(nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.entering[id] == e {
			delete(d.entering, id)
		}
		close(e.done)
	}
}

// endEntering ends the creation of a ticket, if it is under way.
func (d *Driver) endEntering(ctx context.Context, id string) error {
	d.mu.Lock()
	e := d.entering[id]
	d.mu.Unlock()
	if e == nil {
		return nil
	}
	e.cancel(errReleased)
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ended is the error of an operation whose context, from bind, has ended: its
// cause, and the last that was heard of the store.
func ended(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, driver.ErrClosed) {
		return driver.ErrClosed
	}
	if last == nil || errors.Is(last, cause) {
		return cause
	}
	return errors.Join(cause, mark(last))
}

// better is what was heard of the store: err, unless that says only that ctx has
// ended, or else last.
func better(ctx context.Context, err, last error) error {
	if last != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return last
	}
	return err
}
