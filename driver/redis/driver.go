package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// Driver keeps locks in Redis. Make it with [New] or by URL.
type Driver struct {
	client  redis.UniversalClient
	owned   bool // opened by URL: Close closes it
	name    string
	keys    redisline.Keys
	single  bool // every script runs on one server, which knows all who listen
	channel string
	durable bool

	protocol    *protocol.Check
	protocolKey string

	pipe     *redisline.Pipe
	listener *redisline.Listener
	ctx      context.Context //nolint:containedctx // of the heartbeats: ends with Close
	cancel   context.CancelFunc
	closing  chan struct{}
	work     sync.WaitGroup // heartbeats

	mu      sync.Mutex
	closed  bool
	tell    func(driver.Hold, error)
	rooms   map[string]*room
	waiters map[string]*waiter // by ticket ID
	early   map[string]verdict // notices to tickets that are not waiters
	unknown map[string]stray   // tickets whose Acquire was not answered
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

// DefaultPrefix begins all keys and channels unless WithPrefix says otherwise.
const DefaultPrefix = "locker"

// An Option changes a Driver. A nil Option does nothing.
type Option func(*options)

type options struct {
	prefix, keyForm string
	replicas        int
	replicaTimeout  time.Duration
}

// WithPrefix sets what the names of all keys and channels begin with: 1 to 128
// bytes without braces, blanks and control characters. Drivers with different
// prefixes do not see each other's locks.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithKeyForm sets what the keys of exclusive holders look like: form with the name in
// the place of its one *. So "*" is the name itself, as locks of other libraries
// usually have it, and "lock:*" the name with something before. Unless it is set the
// key is prefix:{name}. With it, programs that lock with SET NX PX on keys of their
// own are kept out, and keep us out, while both run; what else the driver keeps
// stands beside that key and, for all names together, under the prefix. All programs
// that use the same prefix have to use the same form.
//
// No other data may be under such keys. In a Cluster the form needs a hash tag, as in
// "{*}" or "lock:{*}". A name whose key would be one of the driver's own, such as
// prefix:fence, is refused with ErrUnsupported, and in a Cluster one that begins with }.
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
// Cluster. A Ring is refused: it moves names to other servers when one is down,
// and with them goes the knowledge of who holds them. The client stays the
// caller's to close, after the Driver. New does not reach the server.
func New(client redis.UniversalClient, opts ...Option) (*Driver, error) {
	if isNil(client) {
		return nil, errors.New("redis: New: the client is nil")
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, fmt.Errorf("redis: New: %w: a Ring; want a client of one server, of Sentinel, or of a Cluster", driver.ErrUnsupported)
	}
	o := options{prefix: DefaultPrefix}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if err := o.check(client); err != nil {
		return nil, fmt.Errorf("redis: New: %w", err)
	}
	return newDriver(client, o), nil
}

// isNil also knows the nil pointers that an interface hides.
func isNil(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case nil:
		return true
	case *redis.Client:
		return c == nil
	case *redis.ClusterClient:
		return c == nil
	case *redis.Ring:
		return c == nil
	}
	return false
}

// keysFor names the keys; what is not known to be one server may be a Cluster in
// disguise.
func (o options) keysFor(client redis.UniversalClient) redisline.Keys {
	_, single := client.(*redis.Client)
	return redisline.Keys{Prefix: o.prefix, Form: o.keyForm, Slots: !single}
}

func (o options) check(client redis.UniversalClient) error {
	if err := errors.Join(redisline.CheckPrefix(o.prefix), o.keysFor(client).CheckForm()); err != nil {
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
		client: client, name: describe(client), single: !keys.Slots, keys: keys,
		durable: o.replicas > 0,
		pipe:    redisline.NewPipe(client),
		closing: make(chan struct{}),
		rooms:   make(map[string]*room),
		waiters: make(map[string]*waiter),
		early:   make(map[string]verdict),
		unknown: make(map[string]stray),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.pipe.Replicas, d.pipe.ReplicaTimeout = o.replicas, o.replicaTimeout
	d.channel = d.keys.Channel()
	d.protocol, d.protocolKey = d.keys.Check("")
	d.listener = redisline.NewListener(client, d.channel, d.hear, d.recheck)
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

// NotifyLoss implements driver.LossNotifier: Break tells at once.
func (d *Driver) NotifyLoss(tell func(driver.Hold, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tell = tell
}

// closeBound is how long Close waits for requests that are under way, which
// end by themselves after the client's timeouts.
const closeBound = 100 * time.Millisecond

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.closing)
	for _, rm := range d.rooms {
		rm.alarm.Stop()
	}
	d.mu.Unlock()
	d.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.listener.Close()
		d.pipe.Close(closeBound)
		d.work.Wait()
	}()
	var err error
	if d.owned {
		err = d.client.Close() // ends the requests that are under way
	}
	t := time.NewTimer(closeBound)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	}
	return err
}

// begin counts background work that Close waits for.
func (d *Driver) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Add(1)
	return true
}

// do runs a script, again while a Cluster is moving the hash slot of its keys.
func (d *Driver) do(ctx context.Context, c *redisline.Call) (any, error) {
	d.listener.Start() // the subscription is told of a break, and knows why there is no connection
	for delay := movingFirst; ; delay = min(2*delay, movingMost) {
		v, err := d.pipe.Do(ctx, c)
		if err == nil {
			return v, nil
		}
		if !redisline.Moving(err) {
			return nil, d.explain(ctx, err)
		}
		t := time.NewTimer(delay)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, redisline.Ended(ctx, err)
		case <-d.closing:
			t.Stop()
			return nil, driver.ErrClosed
		}
	}
}

// How soon a script is run again on a hash slot that is being moved.
const (
	movingFirst = 5 * time.Millisecond
	movingMost  = 100 * time.Millisecond
)

// explain says what the error of a request is to the core.
func (d *Driver) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redisline.ErrClosed), errors.Is(err, redis.ErrClosed) && d.isClosed():
		return driver.ErrClosed
	case isContextEnd(ctx, err):
		return redisline.Ended(ctx, d.listener.Err())
	}
	return redisline.Unavailable(err)
}

// Ping implements driver.Pinger: one request, which runs each command that the
// others need, on keys that it removes again. The first time it also waits for
// the subscription.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.agree(ctx, false); err != nil {
		return err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	main := d.keys.Main("ping-" + hex.EncodeToString(id[:]))
	c := d.call(redisline.Ping, d.keys.All(main, d.keys.Fence(main)), d.channel)
	c.Durable = d.durable
	if _, err := d.do(ctx, c); err != nil {
		return err
	}
	if err := c.Acked(); err != nil {
		return redisline.Unavailable(err)
	}
	return d.await(ctx)
}

func (d *Driver) isClosed() bool {
	select {
	case <-d.closing:
		return true
	default:
		return false
	}
}

// ErrReplicas says that fewer replicas than WithReplicas asks for have
// acknowledged a grant or a renewal in time.
var ErrReplicas = redisline.ErrReplicas

// ACLCommands are the commands that a user of Redis needs the right to, beside
// the keys and the channels that begin with the prefix: ~locker:* &locker:*.
// wait is for WithReplicas, scan and getrange for listing; a Cluster needs cluster|slots
// and command besides.
const ACLCommands = "evalsha eval time get set del exists pttl pexpire " +
	"hget hset hdel zadd zrem zscore zcard zcount zincrby zrange zrevrange zrangebyscore getrange " +
	"publish subscribe unsubscribe ping select scan wait"
