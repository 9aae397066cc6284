package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/driver/internal/protocol"
	"github.com/lockerproject/locker/driver/internal/setup"
)

// Times that the server fixes, unless it is configured otherwise.
const (
	minTTL = 10 * time.Second
	maxTTL = 24 * time.Hour
)

// Driver is a driver.Driver on Consul. See the package comment.
type Driver struct {
	*kvqueue.Engine
	store *store
	name  string // String
	owned func() // frees the client that the driver has opened; may be nil
}

var (
	_ driver.Lister          = (*Driver)(nil)
	_ driver.Breaker         = (*Driver)(nil)
	_ driver.Bounder         = (*Driver)(nil)
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// version is the version of the stored data (wire.go). All programs that use the same
// locks must have the same one. It goes up with each change after which older and
// newer programs would not exclude each other.
const version = "2"

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

// WithPrefix sets the beginning of all keys; the default is "locker". No other program may write
// below it.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithDatacenter sets the datacenter in which the locks are kept. The default is the client's, or
// its agent's, datacenter. Locks of two datacenters are different locks.
func WithDatacenter(dc string) Option { return func(o *options) { o.datacenter = dc } }

// WithNamespace sets the namespace (Consul Enterprise). Consul's transactions do
// not take it from the client's configuration, so it must be given here too.
func WithNamespace(ns string) Option { return func(o *options) { o.namespace = ns } }

// WithPartition sets the admin partition (Consul Enterprise), as WithNamespace.
func WithPartition(p string) Option { return func(o *options) { o.partition = p } }

// WithMinTTL sets the shortest TTL that the servers give a session, if their session_ttl_min is not
// Consul's default of 10 s.
func WithMinTTL(d time.Duration) Option { return func(o *options) { o.minTTL = d } }

// WithQueryWait sets how long a blocking query waits on the server; 45 s unless
// set. The server adds up to a sixteenth. It must be shorter than the time after
// which a proxy between the program and the agent closes an idle connection.
func WithQueryWait(d time.Duration) Option { return func(o *options) { o.queryWait = d } }

// New makes a driver that uses client and never closes it. It sends no request.
//
// The client should keep some idle connections per host (http.Transport.MaxIdleConnsPerHost).
// Eight are enough, since concurrent callers share requests; each costs two goroutines. Its
// http.Client should have no Timeout, because waiters use blocking queries. With TLS it should not
// use HTTP/2 (http.Transport.ForceAttemptHTTP2), where all requests depend on one connection, which
// may be dead. Without compression (http.Transport.DisableCompression) contended locks are faster.
func New(client *api.Client, opts ...Option) (*Driver, error) {
	if client == nil {
		return nil, errors.New("consul: New needs a client, got nil")
	}
	o := options{prefix: "locker", minTTL: minTTL, queryWait: queryWait, version: version}
	setup.Apply(&o, opts)
	if err := checkPrefix(o.prefix); err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	if o.minTTL <= 0 || o.minTTL > maxTTL {
		return nil, fmt.Errorf("consul: shortest TTL %v: want more than zero and at most %v", o.minTTL, maxTTL)
	}
	if o.queryWait < time.Second || o.queryWait > maxQueryWait {
		return nil, fmt.Errorf("consul: wait of a blocking query %v: want at least 1s and at most %v", o.queryWait, maxQueryWait)
	}
	s := &store{
		client: client, opts: o,
		keys: keyspace{prefix: o.prefix}, watches: make(chan struct{}, ownWatches),
	}
	s.shared.store, s.writes.store = s, s
	s.protocol = protocol.New(o.version, "the key "+s.keys.protocol(), "delete that key (consul kv delete)")
	s.engine = kvqueue.New(kvqueue.Options{
		Store: s, LocalWait: time.Second, Recheck: o.queryBound() + time.Second, LongQueue: 1,
		MissingMost: mostOps, LookFor: lookFor,
	})
	return &Driver{Engine: s.engine, store: s, name: "consul"}, nil
}

// String names the store and, when it was opened by URL, its address.
func (d *Driver) String() string { return d.name }

// Bounds implements driver.Bounder. A server ends a session between one and
// two times its TTL after the last renewal.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	ends := 2*max(ttl, d.store.opts.minTTL) + time.Second
	return driver.Bounds{MinTTL: d.store.opts.minTTL, MaxTTL: maxTTL, Crash: ends, Liveness: ends}
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	err := d.Engine.Close()
	if d.owned != nil {
		d.owned()
	}
	return err
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	var names []string
	err := kvqueue.Ask(ctx, d.Engine, func(ctx context.Context) error {
		keys, meta, err := d.store.client.KV().Keys(d.store.keys.queues(), "", d.store.exact(ctx))
		if err != nil {
			return err
		}
		for _, key := range keys {
			if name, ok := d.store.keys.nameOf(key); ok {
				names = append(names, name)
			}
		}
		return filtered(meta)
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// Break implements driver.Breaker. It notifies the ticket's driver by a key of the
// ticket's session. It also removes a key that another program has locked in the queue.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	return kvqueue.Ask(ctx, d.Engine, func(ctx context.Context) error {
		for {
			pairs, _, err := d.store.list(d.store.exact(ctx), d.store.keys.queue(name))
			if err != nil {
				return err
			}
			i := slices.IndexFunc(pairs, func(p *api.KVPair) bool { return p.CreateIndex == token && p.Session != "" })
			if i < 0 {
				return driver.ErrLost
			}
			p := pairs[i]
			ops := []op{indexOp(p.Key, p.ModifyIndex), keyOp(api.KVDelete, p.Key)}
			if t, err := parseQueue(name, pairs[i:i+1]); err == nil {
				ops = append(ops, lockOp(d.store.keys.notice(p.Session), p.Session, []byte("broken "+t[0].ID)))
			}
			if _, err = d.store.commit(ctx, ops...); errors.As(err, new(*rollback)) {
				continue // it has gone or was changed meanwhile
			}
			if err == nil {
				kvqueue.Deleted(d.Engine, name, kvqueue.Gone{Key: p.Key, Before: token + 1})
			}
			return err
		}
	})
}

// Ping implements driver.Pinger. Its two requests are invalid, so that the server refuses them
// after it has checked the rights, and they write nothing: one asks for a session with an unknown
// behaviour, the other is a transaction with a session that does not exist.
func (d *Driver) Ping(ctx context.Context) error {
	return kvqueue.Ask(ctx, d.Engine, func(ctx context.Context) error {
		_, err := d.store.open(ctx, minTTL, "none")
		switch status := statusOf(err); {
		case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
			return driver.Unavailable(err) // another kind of server
		case err == nil, !strings.Contains(err.Error(), "Invalid Behavior"):
			return err
		}
		_, err = d.store.commit(ctx, lockOp(d.store.keys.queue("ping")+noSession, noSession, nil))
		if errors.As(err, new(*rollback)) {
			return nil
		}
		return err
	})
}

const noSession = "00000000-0000-0000-0000-000000000000"

// ServerVersion implements driver.ServerVersioner. It returns the agent's version. With ACLs it
// needs the right to read the agent.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	var self struct {
		Config struct{ Version string }
	}
	err := kvqueue.Call(ctx, d.Engine, func(ctx context.Context) error {
		_, err := d.store.client.Raw().Query("/v1/agent/self", &self, d.store.read(ctx))
		return err
	})
	if err != nil {
		return "", err
	}
	return "Consul " + self.Config.Version, nil
}
