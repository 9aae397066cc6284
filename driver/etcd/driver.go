package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// Driver takes locks in one etcd. Several on one etcd, with the same prefix,
// exclude each other, whether or not they share a client.
type Driver struct {
	client *clientv3.Client
	owned  bool // the client was made here, and is closed with the driver

	prefix   string
	instance string // what the keys of this driver hold
	push     bool
	protocol *protocol.Check
	tell     func(driver.Hold, error) // nil: nobody wants to be told

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // all goroutines
	keeper keeper
	losses lossWatch

	several    atomic.Bool  // the client knows more than one member
	streams    atomic.Int64 // counts up when watches need another stream
	reconnects atomic.Int64 // when connections were last made anew at once

	// mu guards what follows, and the fields of tickets, lines and leases. It
	// is never held over a request.
	mu       sync.Mutex
	closed   bool
	tickets  map[string]*ticket // by ID
	lines    map[string]*line   // by name; those with a ticket of ours or a watch
	leases   map[clientv3.LeaseID]*lease
	pools    map[int64]*pool // by TTL in seconds
	shortest time.Duration   // the shortest lease the server is known to give
	slotBase int             // where the slots of a new line begin
	storeErr error           // the last answer, if it was an error
	notices  []notice        // losses to tell when mu is free
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

// Times that bound what the driver does on its own account.
const (
	answerBound = 10 * time.Second       // one request
	tryBound    = 2 * time.Second        // one that another member may answer, if this one hangs
	putGrace    = 250 * time.Millisecond // a put whose context has ended
	insistBound = 4 * time.Second        // asking again where there is no server
	retryPause  = 50 * time.Millisecond  // the pause before that
	revokeBound = 2 * time.Second        // revoking a lease
	closeBound  = 100 * time.Millisecond // revoking, at Close, leases without a ticket
	retryFirst  = 20 * time.Millisecond  // between two tries
	retryMost   = 500 * time.Millisecond // the same, at the most
	linger      = 2 * time.Second        // a watch that nobody needs any more
)

// DefaultPrefix is what all keys begin with unless WithPrefix says otherwise.
const DefaultPrefix = "locker"

// An Option changes a Driver. A nil Option does nothing.
type Option func(*options)

type options struct {
	prefix string
	quiet  bool
	logger *slog.Logger

	version string // of the protocol
}

// WithPrefix sets what all keys begin with. Drivers with different prefixes
// share no locks. A slash at the end does not count; # is not accepted.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithoutLossWatch does without the watch that tells at once of a held lock
// that was deleted or broken: the loss is then noticed at the next renewal. The
// watch costs one message for each release, by anybody, of a lock with the
// same prefix, while this driver holds one.
func WithoutLossWatch() Option { return func(o *options) { o.quiet = true } }

// WithLogger has the client of a driver that [Open] makes log there what it meets;
// unless set it logs nothing, since errors are returned. New refuses it: a client
// that is there already has a logger of its own (clientv3.Config.Logger).
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// New makes a Driver on a client, which stays the caller's to close, after the
// Driver. It does not reach the store.
//
// Set the client's DialKeepAliveTime (10 s, say) and DialKeepAliveTimeout:
// without them a connection that has silently gone dead is noticed late. Set gRPC's
// MinConnectTimeout (grpc.WithConnectParams) to 2 s, say: without it, a connection
// whose first packet was lost in an outage is waited for up to 20 s. A
// client that confines its keys to a namespace (clientv3/namespace) will do.
func New(client *clientv3.Client, opts ...Option) (*Driver, error) {
	if client == nil {
		return nil, errors.New("etcd: New: the client is nil")
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.logger != nil {
		return nil, errors.New("etcd: New: WithLogger is for Open: the client has a logger of its own")
	}
	return newDriver(client, o), nil
}

func newOptions(opts []Option) (options, error) {
	o := options{prefix: DefaultPrefix, version: version}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	var err error
	o.prefix, err = checkPrefix(o.prefix)
	return o, err
}

func newDriver(client *clientv3.Client, o options) *Driver {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	d := &Driver{
		client: client, prefix: o.prefix, instance: hex.EncodeToString(id[:]), push: !o.quiet, protocol: newCheck(o),
		tickets:  make(map[string]*ticket),
		lines:    make(map[string]*line),
		leases:   make(map[clientv3.LeaseID]*lease),
		pools:    make(map[int64]*pool),
		shortest: usualShortest,
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.survey()
	d.keeper.wake = make(chan struct{}, 1)
	return d
}

func checkPrefix(prefix string) (string, error) {
	trimmed := strings.TrimRight(prefix, "/")
	switch {
	case trimmed == "":
		return "", fmt.Errorf("etcd: prefix %q: want at least one byte that is not a slash", prefix)
	case len(trimmed) > 512:
		return "", fmt.Errorf("etcd: prefix of %d bytes: want at most 512", len(trimmed))
	case strings.Contains(trimmed, "#"):
		return "", fmt.Errorf("etcd: prefix %q: # is not accepted", prefix)
	}
	return trimmed, nil
}

// String names the store, without credentials.
func (d *Driver) String() string {
	hosts := d.client.Endpoints()
	for i, h := range hosts {
		if _, after, ok := strings.Cut(h, "://"); ok {
			hosts[i] = after
		}
	}
	return "etcd " + strings.Join(hosts, ",")
}

// Leases of etcd are whole seconds, and no shorter than one and a half election
// timeouts: with the usual one of a second, two seconds.
const usualShortest = 2 * time.Second

// longest is the longest lease that etcd gives.
const longest = clientv3.MaxLeaseTTL * time.Second

// Bounds implements driver.Bounder. A lease that is over is found by the server
// within half a second, and revoked through the log; the rest is allowed for
// the requests and for lag. A change of leader while a holder is dead
// starts its lease anew, which is not in the bounds: see the package comment.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	d.mu.Lock()
	shortest := d.shortest
	d.mu.Unlock()
	end := max(time.Duration(seconds(ttl))*time.Second, shortest) + 2*time.Second
	return driver.Bounds{MinTTL: shortest, MaxTTL: longest, Crash: end, Liveness: end}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(tell func(driver.Hold, error)) { d.tell = tell }

// Close implements driver.Driver. It revokes the leases, and with them the tickets
// that may still be queued, except those with a minimum hold. A store that
// does not answer ends the leases by itself when they are over.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.stopLossWatch()
	d.work.Wait()
	d.revokeAll()
	if d.owned {
		return d.client.Close()
	}
	return nil
}

// spawn starts a goroutine that Close waits for; it reports false after Close.
// With mu held.
func (d *Driver) spawn(f func()) bool {
	if d.closed {
		return false
	}
	d.work.Go(f)
	return true
}

// notice is a loss that is still to be told.
type notice struct {
	hold  driver.Hold
	cause error
}

// unlock ends mu and tells of the losses that were found under it.
func (d *Driver) unlock() {
	notices := d.notices
	d.notices = nil
	tell := d.tell
	d.mu.Unlock()
	if tell == nil {
		return
	}
	for _, n := range notices {
		tell(n.hold, n.cause)
	}
}

// heard notes what the store last said, for those who give up waiting.
func (d *Driver) heard(err error) {
	d.mu.Lock()
	d.storeErr = err
	d.mu.Unlock()
}

// pause waits between two tries; it reports false when ctx or the driver ends.
func (d *Driver) pause(ctx context.Context, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-d.ctx.Done():
	}
	return false
}
