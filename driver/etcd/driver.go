package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/driver/internal/protocol"
	"github.com/lockerproject/locker/driver/internal/setup"
)

// Driver takes locks in one etcd. Several Drivers on one etcd, with the same prefix,
// exclude each other, whether or not they share a client. It has the methods of
// [driver.Driver].
type Driver struct {
	*kvqueue.Engine
	store *store
	owned atomic.Pointer[clientv3.Client] // the client, if the Driver made it and has not closed it
	leave func() bool                     // the client no longer closes the Driver
}

var (
	_ driver.Lister          = (*Driver)(nil)
	_ driver.Breaker         = (*Driver)(nil)
	_ driver.Bounder         = (*Driver)(nil)
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// DefaultPrefix is the beginning of all keys unless WithPrefix sets another.
const DefaultPrefix = "locker"

// An Option changes a Driver. A nil Option does nothing.
type Option func(*options)

type options struct {
	prefix  string
	logger  *slog.Logger
	version string // of the protocol
}

// WithPrefix sets what all keys begin with. Drivers with different prefixes
// share no locks. A slash at the end does not count; # is not accepted.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithLogger sets the logger of the client that [Open] makes. Without it the client
// logs nothing, since errors are returned. New refuses it, because the client that it
// is given has a logger of its own (clientv3.Config.Logger).
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// New makes a Driver on a client, which the caller closes, after the Driver: all calls on a closed
// client are driver.ErrClosed. It sends no request.
//
// Set the client's DialKeepAliveTime (10 s, say) and DialKeepAliveTimeout: without them a
// connection that has silently gone dead is noticed late. Set gRPC's MinConnectTimeout
// (grpc.WithConnectParams) to 2 s, say: without it, the client waits for up to 20 s for a
// connection whose first packet was lost in an outage. A client that confines its keys to a
// namespace (clientv3/namespace) works too.
func New(client *clientv3.Client, opts ...Option) (*Driver, error) {
	if client == nil || client.ActiveConnection() == nil {
		return nil, errors.New("etcd: New: the client is nil, or has no connection")
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
	setup.Apply(&o, opts)
	var err error
	o.prefix, err = checkPrefix(o.prefix)
	return o, err
}

func newDriver(client *clientv3.Client, o options) *Driver {
	s := &store{keyspace: keyspace{o.prefix}, client: client, idle: make(chan keepAlive, mostIdle)}
	s.life, s.end = context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	s.protocol = protocol.New(o.version, "the key "+s.keyspace.protocol(), "delete that key (etcdctl del)")
	s.shortest.Store(usualShortest)
	d := &Driver{store: s, Engine: kvqueue.New(kvqueue.Options{
		Store: s, MissingMost: missingMost, LookFor: missingMost, NearHead: nearHead,
	})}
	d.leave = context.AfterFunc(client.Ctx(), func() { // its user has closed it, or the context of its Config has ended
		conn := client.ActiveConnection()
		for st := conn.GetState(); st != connectivity.Shutdown; st = conn.GetState() {
			if !conn.WaitForStateChange(s.life, st) {
				return
			}
		}
		s.end()
		_ = d.Engine.Close()
	})
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
func (d *Driver) String() string { return d.store.String() }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.leave()
	err := d.Engine.Close()
	d.store.end()
	if client := d.owned.Swap(nil); client != nil {
		err = errors.Join(err, client.Close())
	}
	return err
}

// Leases of etcd are whole seconds, and no shorter than one and a half election
// timeouts: with the usual one of a second, two seconds.
const usualShortest = 2

// longest is the longest lease that etcd gives.
const longest = clientv3.MaxLeaseTTL * time.Second

// Bounds implements driver.Bounder. The server finds an expired lease within half a second, and
// revokes it through the log; the rest allows for requests and delays. A change of leader while a
// holder is dead starts its lease anew, which is not in the bounds: see the package comment.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	shortest := d.store.shortest.Load()
	end := time.Duration(max(seconds(ttl), shortest))*time.Second + 2*time.Second
	return driver.Bounds{MinTTL: time.Duration(shortest) * time.Second, MaxTTL: longest, Crash: end, Liveness: end}
}

// List implements driver.Lister. It reads the keys of all tickets, a page at a
// time.
func (d *Driver) List(ctx context.Context) (names []string, err error) {
	const page = 10000
	first := d.store.prefix + "/"
	end := clientv3.GetPrefixRangeEnd(first)
	err = kvqueue.Ask(ctx, d.Engine, func(ctx context.Context) error {
		for {
			resp, err := d.store.client.Get(clientv3.WithRequireLeader(ctx), first,
				clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(page))
			if err != nil {
				return err
			}
			for _, kv := range resp.Kvs {
				if name, ok := d.store.nameOf(string(kv.Key)); ok {
					names = append(names, name)
				}
			}
			if !resp.More || len(resp.Kvs) == 0 {
				return nil
			}
			first = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Break implements driver.Breaker. It notifies the ticket's driver by a key of the ticket's
// session: see store.Losses.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	return kvqueue.Ask(ctx, d.Engine, func(ctx context.Context) error {
		// For etcd, zero is no bound.
		queue, number := d.store.queue(name), int64(max(token, 1))
		for removed := false; ; { // again if it has gone, or was moved to another session, meanwhile
			resp, err := d.store.client.Get(clientv3.WithRequireLeader(ctx), queue, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
				clientv3.WithMinCreateRev(number), clientv3.WithMaxCreateRev(number))
			if err != nil {
				return err
			}
			i := slices.IndexFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return isTicket(string(kv.Key[len(queue):])) })
			switch {
			case i < 0 && removed:
				return nil
			case i < 0:
				return driver.ErrLost
			}
			key, lease := string(resp.Kvs[i].Key), clientv3.LeaseID(resp.Kvs[i].Lease)
			cmps := []clientv3.Cmp{createdAt(key, token), onLease(key, lease)}
			sending, before := mayRepeat(ctx)
			done, err := d.store.commit(sending, cmps, clientv3.OpDelete(key), clientv3.OpDelete(d.store.notice(sessionOf(lease))))
			if err != nil {
				return err
			}
			if done.Succeeded {
				kvqueue.Deleted(d.Engine, name, kvqueue.Gone{Key: key, Before: token + 1})
				return nil
			}
			removed = before.Load()
		}
	})
}

// Ping implements driver.Pinger. It sends a read, and a transaction that changes nothing. The
// server refuses that transaction to users who may not write the keys of tickets.
func (d *Driver) Ping(ctx context.Context) error {
	right := "read"
	err := kvqueue.Ask(ctx, d.Engine, func(ctx context.Context) error {
		key := d.store.ping()
		if _, err := d.store.client.Get(d.store.refuseIfLeaderless(ctx), key); err != nil {
			return err
		}
		right = "write"
		never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
		_, err := d.store.commit(ctx, []clientv3.Cmp{never}, clientv3.OpPut(key, ""))
		return err
	})
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("the user may not %s below %s/: %w", right, d.store.prefix, err)
	}
	return err
}

// ServerVersion implements driver.ServerVersioner. It returns the version of the first
// member that answers.
func (d *Driver) ServerVersion(ctx context.Context) (version string, err error) {
	err = kvqueue.Call(ctx, d.Engine, func(ctx context.Context) error {
		var errs []error
		for _, endpoint := range d.store.client.Endpoints() {
			status, err := d.store.client.Status(ctx, endpoint)
			if err == nil {
				version = "etcd " + status.Version
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return version, err
}

// Held is a lock as its holder knows it; *locker.Lock is one.
type Held interface {
	Name() string
	Token() uint64
}

// Guard is a condition that holds as long as the ticket of a lock is queued. Put it
// into the transactions that the lock protects, in the same etcd:
//
//	client.Txn(ctx).If(d.Guard(lock)).Then(clientv3.OpPut(…)).Commit()
//
// Then no write of a holder that has lost its lock can ever be committed, however
// late it is: etcd itself compares, at the moment of the write. It is the
// strictest form of fencing, for data that is in etcd.
//
// The condition never holds for a lock that was not acquired through this Driver, or
// that this Driver knows to be lost or released. Package fence/etcdfence has a call for
// the whole transaction, which returns fence.ErrStale.
func (d *Driver) Guard(k Held) clientv3.Cmp {
	key, ok := kvqueue.Key(d.Engine, k.Name(), k.Token())
	if !ok {
		key = d.store.queue(k.Name()) // never exists: it names no ticket
	}
	return createdAt(key, max(k.Token(), 1))
}
