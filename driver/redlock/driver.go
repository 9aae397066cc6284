package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
	"github.com/lockerproject/locker/driver/internal/protocol"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/driver/internal/setup"
)

// Driver keeps locks on a majority of independent Redis servers. Make it with
// [New] or by URL.
type Driver struct {
	nodes   []*node
	owned   []*redis.Client // opened by URL: Close closes them
	quorum  int
	timeout time.Duration // of one request to one node
	drift   float64       // part of a lease by which clocks may drift apart
	keys    redisqueue.Keys
	channel string
	numbers *numbers

	protocol    *protocol.Check
	protocolKey string

	heartbeats redisqueue.Heartbeats
	life       *life.Life
	ctx        context.Context //nolint:containedctx // of background tasks: ends when Close waits for nothing any more
	cancel     context.CancelFunc
	notifyLoss func(driver.Hold, error) // reports a loss; may be nil
	longest    atomic.Int64             // the longest lease that was requested: so long may a node keep a ticket

	mu      sync.Mutex
	tickets map[string]*ticket // by ID: those that Acquire asks for, and those that hold
}

var (
	_ driver.Driver          = (*Driver)(nil)
	_ driver.BatchRenewer    = (*Driver)(nil)
	_ driver.Lister          = (*Driver)(nil)
	_ driver.Breaker         = (*Driver)(nil)
	_ driver.LossNotifier    = (*Driver)(nil)
	_ driver.Shortener       = (*Driver)(nil)
	_ driver.Bounder         = (*Driver)(nil)
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// Defaults of the options.
const (
	DefaultPrefix  = "locker"
	DefaultTimeout = time.Second
	DefaultDrift   = 0.01
)

// fewest is the smallest number of nodes that survives the loss of one, and most is how
// many bits a set of nodes has.
const (
	fewest = 3
	most   = 64
)

// An Option changes a Driver. A nil Option does nothing.
type Option func(*options)

type options struct {
	prefix  string
	keyForm string
	timeout time.Duration
	drift   float64
}

// WithPrefix sets the beginning of all keys and channels: 1 to 128 bytes without braces,
// blanks and control characters. Drivers with different prefixes do not see each other's
// locks.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithKeyForm sets the form of the keys of exclusive holders on each node, in which one *
// stands for the name. So "*" is the name itself, which mutexes of go-redsync usually
// have as their key, and "lock:*" the name after a prefix. The default is prefix:{name}.
// With the same keys, this driver and programs of other libraries that use Redlock with
// SET NX PX exclude each other while both run. The other data of a lock is in keys beside
// that key and, for all names together, under the prefix. All programs that use the same
// prefix must use the same form.
//
// No other data may be under such keys. A name whose key would be one of the driver's
// own, such as prefix:fences, is refused with ErrUnsupported.
func WithKeyForm(form string) Option { return func(o *options) { o.keyForm = form } }

// WithNodeTimeout sets how long one node may take to answer one request; the default is a
// second. While a majority gives one answer sooner, no call but List and ServerVersion waits that long:
// it is the time after which a missing majority is noticed. It should be much shorter than the TTLs in use.
func WithNodeTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithDrift sets the part of a lease by which the clocks of a node and a holder may drift
// apart: 0 to 0.5; the default is 0.01. Nodes keep a lease for that much longer, plus two
// milliseconds.
func WithDrift(part float64) Option { return func(o *options) { o.drift = part } }

// New makes a Driver over the clients of 3 to 64 servers, which know nothing of each
// other: no replicas, no Cluster. The caller closes the clients, after the Driver. New
// sends no request.
func New(clients []redis.UniversalClient, opts ...Option) (*Driver, error) {
	o := options{prefix: DefaultPrefix, timeout: DefaultTimeout, drift: DefaultDrift}
	setup.Apply(&o, opts)
	nodes, err := single(clients)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return nil, fmt.Errorf("redlock: New: %w", err)
	}
	return newDriver(nodes, o), nil
}

// single returns the clients, each of which has to be of one server.
func single(clients []redis.UniversalClient) ([]*redis.Client, error) {
	if err := checkCount(len(clients)); err != nil {
		return nil, err
	}
	nodes := make([]*redis.Client, len(clients))
	at := make(map[string]int)
	for i, u := range clients {
		c, ok := u.(*redis.Client)
		switch {
		case u == nil || ok && c == nil:
			return nil, fmt.Errorf("client %d is nil", i+1)
		case !ok:
			return nil, fmt.Errorf("client %d is a %T: want a *redis.Client of one independent server", i+1, u)
		}
		o := c.Options()
		address := fmt.Sprintf("%s/%d", o.Addr, o.DB)
		if before, ok := at[address]; ok && o.Addr != "FailoverClient" {
			return nil, fmt.Errorf("clients %d and %d are of the same server %s", before+1, i+1, address)
		}
		at[address] = i
		nodes[i] = c
	}
	return nodes, nil
}

func checkCount(n int) error {
	if n < fewest {
		return fmt.Errorf("%d nodes: want at least %d, so that one may fail (for one server use redis://)", n, fewest)
	}
	if n > most {
		return fmt.Errorf("%d nodes: want at most %d", n, most)
	}
	return nil
}

func (o options) keys() redisqueue.Keys { return redisqueue.Keys{Prefix: o.prefix, Form: o.keyForm} }

func (o options) check() error {
	if err := errors.Join(redisqueue.CheckPrefix(o.prefix), o.keys().CheckForm()); err != nil {
		return err
	}
	if o.timeout < time.Millisecond {
		return fmt.Errorf("node timeout %v: want at least 1ms", o.timeout)
	}
	if !(o.drift >= 0 && o.drift <= 0.5) {
		return fmt.Errorf("drift %v: want a part of a lease, 0 to 0.5", o.drift)
	}
	return nil
}

func newDriver(clients []*redis.Client, o options) *Driver {
	keys := o.keys()
	d := &Driver{
		quorum: len(clients)/2 + 1, timeout: o.timeout, drift: o.drift, keys: keys, channel: keys.Channel(),
		numbers: newNumbers(len(clients)),
		life:    life.New(),
		tickets: make(map[string]*ticket),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.protocol, d.protocolKey = keys.Check("redlock")
	d.heartbeats = redisqueue.Heartbeats{Nodes: len(clients), Quorum: d.quorum, Ask: d.keepAlive, State: d.receivedState}
	for i, c := range clients {
		n := newNode(i, c, o.timeout, keys)
		n.listener = redisqueue.NewListener(c, d.channel,
			func(text string) { d.notified(i, text) },
			func() {
				d.heartbeats.Recheck()
				d.life.Go(d.reassure)
			})
		d.nodes = append(d.nodes, n)
	}
	return d
}

// minority is how many nodes may fail.
func (d *Driver) minority() int { return len(d.nodes) - d.quorum }

// String names the store.
func (d *Driver) String() string {
	addrs := make([]string, len(d.nodes))
	for i, n := range d.nodes {
		addrs[i] = n.addr
	}
	return "redlock " + strings.Join(addrs, ",")
}

// Key returns the key that the exclusive holder of a name sets on each node,
// for programs that use Redlock with SET NX PX themselves.
func (d *Driver) Key(name string) string { return d.keys.Main(name) }

// NotifyLoss implements driver.LossNotifier. It notifies of a Break at once.
func (d *Driver) NotifyLoss(notify func(driver.Hold, error)) { d.notifyLoss = notify }

// Bounds implements driver.Bounder. The first waiter's process checks when the lease ends
// on a majority of nodes, which it knows from its last heartbeat.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	lease := time.Duration(d.millis(ttl)) * time.Millisecond
	return driver.Bounds{
		MinTTL:   time.Millisecond,
		Crash:    max(lease, redisqueue.Heartbeat) + 300*time.Millisecond,
		Liveness: redisqueue.Liveness + 300*time.Millisecond,
		Silence:  2 * redisqueue.Heartbeat,
	}
}

// closeBound is how long Close waits for nodes that do not answer.
const closeBound = 100 * time.Millisecond

// Close implements driver.Driver. Requests that were made before, such as releases, still
// reach the nodes that answer within closeBound.
func (d *Driver) Close() error {
	if !d.life.End() {
		return nil
	}
	begun := time.Now()
	d.heartbeats.Close()
	d.each(func(n *node) { n.pipe.Close(closeBound) })
	d.cancel()
	wait := life.Ending(func() {
		d.each(func(n *node) { n.listener.Close() })
		d.life.Wait()
	})
	errs := make([]error, 0, len(d.owned))
	for _, c := range d.owned {
		errs = append(errs, c.Close()) // ends the requests that are under way
	}
	wait(closeBound - time.Since(begun))
	return errors.Join(errs...)
}

// each calls f with all nodes at once, and waits.
func (d *Driver) each(f func(n *node)) {
	var group sync.WaitGroup
	for _, n := range d.nodes {
		group.Go(func() { f(n) })
	}
	group.Wait()
}

// Ping implements driver.Pinger: one request to each node, which runs the commands that
// the other requests need, on keys that it removes again. It also waits until a majority
// of the subscriptions is up.
func (d *Driver) Ping(ctx context.Context) error {
	if d.life.Closed() {
		return driver.ErrClosed
	}
	if err := d.agree(ctx, false); err != nil {
		return err
	}
	keys := []string{d.keys.Main("ping-" + rand.Text()), d.fences()}
	err := d.vote(ctx, "ping", nil, func(*node) *redisqueue.Call { return d.keys.Call(redisqueue.Ping, keys, d.channel) })
	if err != nil {
		return err
	}
	return d.await(ctx)
}
