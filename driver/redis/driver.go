package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/handoff"
	"github.com/lockerproject/locker/driver/internal/life"
	"github.com/lockerproject/locker/driver/internal/protocol"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/driver/internal/setup"
)

// Driver keeps locks in Redis. Make it with [New] or by URL.
type Driver struct {
	client  redis.UniversalClient
	owned   bool // opened by URL: Close closes it
	name    string
	keys    redisqueue.Keys
	channel string
	durable bool

	protocol    *protocol.Check
	protocolKey string

	pipe       *redisqueue.Pipe
	listener   *redisqueue.Listener
	heartbeats redisqueue.Heartbeats
	unanswered redisqueue.Unanswered
	handoff    handoff.Book
	life       *life.Life
	ctx        context.Context //nolint:containedctx // of the heartbeats: ends with Close
	cancel     context.CancelFunc
	notifyLoss func(driver.Hold, error) // reports a loss; may be nil

	mu      sync.Mutex
	waiters map[string]*waiter // by ticket ID
	handed  map[string]*handed // by ticket ID
	handOns map[string]*handed // by the ID of the ticket before, whose release is not answered
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

// DefaultPrefix is the beginning of all keys and channels unless WithPrefix sets another.
const DefaultPrefix = "locker"

// An Option changes a Driver. A nil Option does nothing.
type Option func(*options)

type options struct {
	prefix, keyForm string
	replicas        int
	replicaTimeout  time.Duration
}

// WithPrefix sets the beginning of all keys and channels: 1 to 128 bytes without braces,
// blanks and control characters. Drivers with different prefixes do not see each other's
// locks.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithKeyForm sets the form of the keys of exclusive holders, in which one * stands for
// the name. So "*" is the name itself, which locks of other libraries usually have as
// their key, and "lock:*" the name after a prefix. The default is prefix:{name}. With the
// same keys, this driver and programs of other libraries that lock with SET NX PX exclude
// each other while both run. The other data of a lock is in keys beside that key and, for
// all names together, under the prefix. All programs that use the same prefix must use
// the same form.
//
// No other data may be under such keys. In a Cluster the form needs a hash tag, as in
// "{*}" or "lock:{*}". A name is refused with ErrUnsupported if its key would be one of
// the driver's own, such as prefix:fence, or would have no hash tag in a Cluster because
// the name begins with }.
func WithKeyForm(form string) Option { return func(o *options) { o.keyForm = form } }

// WithReplicas makes a grant, and each renewal, count only when n replicas
// have acknowledged it within timeout (WAIT), so that a failover to one of
// these keeps the lock. Otherwise it fails, and the lock is given back. The
// client's read timeout must be longer. On a Cluster each master needs n
// replicas.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(o *options) { o.replicas, o.replicaTimeout = n, timeout }
}

// New makes a Driver over a client: of one server, also through Sentinel, or of a
// Cluster. A Ring is refused: when a server is down it moves names to other servers,
// which do not know who holds them. The caller closes the client, after the Driver. New
// sends no request.
func New(client redis.UniversalClient, opts ...Option) (*Driver, error) {
	if isNil(client) {
		return nil, errors.New("redis: New: the client is nil")
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, fmt.Errorf("redis: New: %w: a Ring; want a client of one server, of Sentinel, or of a Cluster", driver.ErrUnsupported)
	}
	o := options{prefix: DefaultPrefix}
	setup.Apply(&o, opts)
	if err := o.check(client); err != nil {
		return nil, fmt.Errorf("redis: New: %w", err)
	}
	return newDriver(client, o), nil
}

// isNil also detects nil pointers in an interface.
func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// keysFor names the keys. A client that is not known to be of one server may be of a
// Cluster.
func (o options) keysFor(client redis.UniversalClient) redisqueue.Keys {
	_, single := client.(*redis.Client)
	return redisqueue.Keys{Prefix: o.prefix, Form: o.keyForm, Slots: !single}
}

func (o options) check(client redis.UniversalClient) error {
	if err := errors.Join(redisqueue.CheckPrefix(o.prefix), o.keysFor(client).CheckForm()); err != nil {
		return err
	}
	if o.replicas < 0 {
		return fmt.Errorf("%d replicas: want zero or more", o.replicas)
	}
	if o.replicas > 0 && o.replicaTimeout < time.Millisecond {
		return fmt.Errorf("replica timeout %v: want at least 1ms", o.replicaTimeout)
	}
	return nil
}

func newDriver(client redis.UniversalClient, o options) *Driver {
	keys := o.keysFor(client)
	d := &Driver{
		client: client, name: describe(client), keys: keys, channel: keys.Channel(),
		durable: o.replicas > 0,
		pipe:    redisqueue.NewPipe(client),
		life:    life.New(),
		waiters: make(map[string]*waiter),
		handed:  make(map[string]*handed),
		handOns: make(map[string]*handed),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.pipe.Replicas, d.pipe.ReplicaTimeout = o.replicas, o.replicaTimeout
	d.protocol, d.protocolKey = keys.Check("")
	d.heartbeats = redisqueue.Heartbeats{Nodes: 1, Quorum: 1, Ask: d.keepAlive, State: d.receivedState}
	d.listener = redisqueue.NewListener(client, d.channel, d.notified, d.heartbeats.Recheck)
	d.heartbeats.Unnotified = d.listener.Refused
	return d
}

// describe names the store, without credentials.
func describe(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		if c.Options().Addr == "FailoverClient" { // what go-redis puts there
			return fmt.Sprintf("redis sentinel/%d", c.Options().DB)
		}
		return fmt.Sprintf("redis %s/%d", c.Options().Addr, c.Options().DB)
	case *redis.ClusterClient:
		return "redis cluster " + strings.Join(c.Options().Addrs, ",")
	default:
		return "redis"
	}
}

// String names the store.
func (d *Driver) String() string { return d.name }

// Key returns the key that the exclusive holder of a name sets, for
// programs that lock with SET NX PX themselves.
func (d *Driver) Key(name string) string { return d.keys.Main(name) }

// NotifyLoss implements driver.LossNotifier. It notifies of a Break at once.
func (d *Driver) NotifyLoss(notify func(driver.Hold, error)) { d.notifyLoss = notify }

// closeBound is how long Close waits for requests that are under way, which
// end by themselves after the client's timeouts.
const closeBound = 100 * time.Millisecond

// Close implements driver.Driver.
func (d *Driver) Close() error {
	if !d.life.End() {
		return nil
	}
	d.heartbeats.Close()
	d.cancel()
	wait := life.Ending(func() { // before the client's Close, which waits for a listener that looks for the primary
		d.listener.Close()
		d.pipe.Close(closeBound)
		d.life.Wait()
	})
	var err error
	if d.owned {
		err = d.client.Close() // ends the requests that are under way
	}
	wait(closeBound)
	return err
}

// Ping implements driver.Pinger: one request, which runs each command that the other
// requests need, on keys that it removes again. It also waits until the subscription is
// up, or refused.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.agree(ctx, false); err != nil {
		return err
	}
	main := d.keys.Main("ping-" + rand.Text())
	c := d.keys.Call(redisqueue.Ping, d.keys.All(main, d.keys.Fence(main)), d.channel)
	c.Durable = d.durable
	if _, err := d.do(ctx, c); err != nil {
		return err
	}
	if err := c.Acked(); err != nil {
		return redisqueue.Unavailable(err)
	}
	return d.await(ctx)
}

// ErrReplicas says that fewer replicas than WithReplicas asks for have
// acknowledged a grant or a renewal in time.
var ErrReplicas = redisqueue.ErrReplicas
