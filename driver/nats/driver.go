package nats

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/driver/internal/setup"
)

// Defaults of options.
const (
	DefaultPrefix  = "locker"
	DefaultBucket  = "locker"
	DefaultTimeout = 2 * time.Second
)

// Option changes how New makes a Driver. A nil Option does nothing.
type Option func(*options)

type options struct {
	prefix   string
	bucket   string
	replicas int // 0: the default
	timeout  time.Duration

	// For a connection that the driver makes itself.
	servers     []string
	dialTimeout time.Duration
	connection  []natsgo.Option
}

// WithPrefix sets the beginning of all keys; the default is "locker". Drivers with different prefixes have
// different locks.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithBucket sets the Key-Value bucket that holds the locks; the default is "locker". The driver makes it if there is
// none. Drivers with different buckets have different locks.
func WithBucket(name string) Option { return func(o *options) { o.bucket = name } }

// WithReplicas sets on how many servers the driver makes a bucket, and refuses an existing bucket that is on fewer. By
// default it makes a bucket on three servers in a cluster, otherwise on one, and accepts any number.
func WithReplicas(n int) Option { return func(o *options) { o.replicas = n } }

// WithTimeout sets how long a request may take; the default is 2 s.
func WithTimeout(request time.Duration) Option { return func(o *options) { o.timeout = request } }

// Driver keeps tickets in NATS. See the package comment.
type Driver struct {
	*casqueue.Engine
	client *client
}

var (
	_ driver.ServerVersioner = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// New makes a Driver on a connection. The caller closes the connection, after the Driver. New sends no request.
//
// Set the connection's PingInterval (1 s, say): without it a connection that is lost silently is noticed only after
// minutes. With MaxReconnects(-1) it comes back after any outage.
func New(nc *natsgo.Conn, opts ...Option) (*Driver, error) {
	if nc == nil {
		return nil, errors.New("nats: New: the connection is nil")
	}
	d, err := newDriver(nc, opts)
	if err != nil {
		return nil, fmt.Errorf("nats: New: %w", err)
	}
	return d, nil
}

// newDriver makes a Driver on a connection or, if that is nil, one that makes its own.
func newDriver(nc *natsgo.Conn, opts []Option) (*Driver, error) {
	o := options{prefix: DefaultPrefix, bucket: DefaultBucket, timeout: DefaultTimeout, dialTimeout: DefaultTimeout}
	setup.Apply(&o, opts)
	if err := o.check(); err != nil {
		return nil, err
	}
	c := newClient(nc, o)
	return &Driver{casqueue.New(casqueue.Options{Store: c, Prefix: o.prefix, LatePuts: true}), c}, nil
}

var (
	prefixes = regexp.MustCompile(`^[-/_=a-zA-Z0-9]{1,128}$`)
	buckets  = regexp.MustCompile(`^[-_a-zA-Z0-9]{1,128}$`)
)

func (o *options) check() error {
	switch {
	case !prefixes.MatchString(o.prefix):
		return fmt.Errorf("prefix %q: want at most 128 letters, digits and - / _ =", o.prefix)
	case !buckets.MatchString(o.bucket):
		return fmt.Errorf("bucket %q: want at most 128 letters, digits and - _", o.bucket)
	case o.replicas < 0 || o.replicas > 5:
		return fmt.Errorf("replicas %d: want 1 to 5", o.replicas)
	case o.timeout <= 0 || o.dialTimeout <= 0:
		return errors.New("want timeouts greater than zero")
	}
	return nil
}

// String names the store, without credentials.
func (d *Driver) String() string {
	servers := strings.Join(d.client.o.servers, ",")
	if nc := d.client.given; nc != nil {
		servers = nc.ConnectedAddr()
	}
	return strings.TrimSpace("nats "+servers) + ", bucket " + d.client.o.bucket
}

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	return request(ctx, d.client, func(_ context.Context, s *session) (string, error) {
		return "NATS " + s.nc.ConnectedServerVersion(), nil
	})
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	err := d.Engine.Close()
	d.client.close()
	return err
}
