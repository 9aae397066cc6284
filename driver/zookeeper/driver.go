package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

const (
	defaultPrefix  = "locker"
	defaultSession = 10 * time.Second
	electionBound  = 5 * time.Second // an ensemble that has lost its leader has another by then
)

// Driver keeps locks in a ZooKeeper. All its tickets live as long as the one session of
// its connection. It has the methods of [driver.Driver].
type Driver struct {
	*kvqueue.Engine
	store *store
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

// An Option changes what New makes.
type Option func(*options) error

type options struct {
	base    string
	acl     []zk.ACL
	forward func(zk.Event)
	logger  *slog.Logger
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
	field, err := timeoutField(conn)
	if err != nil {
		return nil, err
	}
	d := newDriver(o)
	d.store.granted = granted{field: field}
	d.store.reconnects.unknown = events == nil
	d.store.start(conn)
	if events != nil {
		kvqueue.Go(d.Engine, func(ctx context.Context) { d.store.listen(ctx, events) })
	}
	return d, nil
}

// newDriver makes a driver without a connection.
func newDriver(o options) *Driver {
	s := newStore(o)
	s.engine = kvqueue.New(kvqueue.Options{
		Store: s, RetryFor: electionBound, LocalWait: time.Second, Recheck: 5 * time.Second, PutKeepsAlive: true, Granted: s.mark,
	})
	return &Driver{Engine: s.engine, store: s}
}

// String names the store.
func (d *Driver) String() string {
	s := d.store
	if s.connection != nil {
		return "zookeeper " + strings.Join(s.connection.hosts.names, ",") + s.base
	}
	if at := s.conn.Server(); at != "" {
		return "zookeeper " + at + s.base
	}
	return "zookeeper " + s.base
}

// Bounds implements driver.Bounder. A lease is as long as the session, whatever its TTL:
// the core ends a shorter one, and when its process has died the session does. The leader
// learns of the last heartbeat up to half a tick late, and ends expired sessions once
// a tick; a tick is half a session at most.
func (d *Driver) Bounds(time.Duration) driver.Bounds {
	timeout := d.store.timeout()
	crash := crashBound(timeout)
	return driver.Bounds{MinTTL: time.Millisecond, MaxTTL: leaseOf(timeout), Crash: crash, Liveness: crash}
}

// crashBound is how long the tickets of a session may outlive its client.
func crashBound(timeout time.Duration) time.Duration { return timeout + 3*timeout/4 + time.Second }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	err := d.Engine.Close()
	d.store.close()
	return err
}

// ask runs a request once it is sure that the locks are kept as this driver does.
func (d *Driver) ask(ctx context.Context, request func(context.Context) error) error {
	return kvqueue.Call(ctx, d.Engine, func(ctx context.Context) error {
		if err := d.store.Agree(ctx, false); err != nil {
			return err
		}
		return request(ctx)
	})
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) (names []string, err error) {
	err = d.ask(ctx, func(ctx context.Context) error {
		if err := d.store.sync(ctx); err != nil {
			return err
		}
		nodes, err := d.store.nameNodes(ctx)
		if err != nil {
			return err
		}
		empty, err := d.store.emptyOnes(ctx, nodes)
		if err != nil {
			return err
		}
		for i, node := range nodes {
			if name, ok := decode(node); ok && !empty[i] {
				names = append(names, name)
			}
		}
		return nil
	})
	return names, err
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	return d.ask(ctx, func(ctx context.Context) error {
		records, err := d.store.Tickets(ctx, name)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Shown.Token != token {
				continue
			}
			err := d.store.Delete(ctx, &r.Ticket)
			if err == nil {
				kvqueue.Deleted(d.Engine, name, kvqueue.Gone{Key: r.Key, Before: r.Number + 1})
			}
			return err
		}
		return fmt.Errorf("%w: no ticket %d is queued", driver.ErrLost, token)
	})
}

// Ping implements driver.Pinger: one transaction that creates a node and deletes it.
func (d *Driver) Ping(ctx context.Context) error {
	err := d.ask(ctx, d.store.ping)
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("the ACL of %s lacks a right of this client: it has to read it, and to create, write and delete nodes below: %w", d.store.base, err)
	}
	return err
}

// ServerVersion implements driver.ServerVersioner. It asks the server that the session
// is on for "srvr", one of its four-letter words, over a connection of its own without
// TLS.
func (d *Driver) ServerVersion(ctx context.Context) (version string, err error) {
	err = kvqueue.Call(ctx, d.Engine, func(ctx context.Context) error {
		if err := d.store.connected(ctx); err != nil {
			return err
		}
		version, err = serverVersion(ctx, d.store.conn.Server())
		return err
	})
	return version, err
}

func serverVersion(ctx context.Context, address string) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(c, 1<<16))
	_, after, ok := strings.Cut(string(text), "Zookeeper version: ")
	if !ok {
		return "", errors.Join(errors.New(`the server does not answer "srvr" (4lw.commands.whitelist)`), err)
	}
	version, _, _ := strings.Cut(after, "-") // 3.8.0-…, built on …
	return "ZooKeeper " + version, nil
}
