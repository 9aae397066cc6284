package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/setup"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

var schemes = []string{"etcd", "etcds"}

func init() {
	for _, scheme := range schemes {
		driver.Register(scheme, func(ctx context.Context, u *driver.URL) (driver.Driver, error) { return openURL(ctx, u, nil) })
	}
}

// Open makes a Driver with a client of its own from a URL, as locker.Open does, and also
// takes options, such as [WithLogger], which override the parameters of the URL. If the
// URL has a user, the store has to answer; otherwise no request is sent.
func Open(ctx context.Context, url string, opts ...Option) (*Driver, error) {
	return setup.Open(url, func(u *driver.URL) (*Driver, error) { return openURL(ctx, u, opts) }, schemes...)
}

// leastKeepalive is the shortest time between two probes that gRPC sends.
const leastKeepalive = 10 * time.Second

// openURL makes a driver with a client of its own. See the package comment for
// the parameters.
func openURL(ctx context.Context, u *driver.URL, opts []Option) (*Driver, error) {
	all := []Option{WithPrefix(u.Param("prefix", DefaultPrefix))}
	config, err := clientConfig(u)
	if err != nil {
		return nil, err
	}
	o, err := newOptions(append(all, opts...))
	if err != nil {
		return nil, err
	}
	config.Logger = zap.NewNop() // errors are returned
	if o.logger != nil {
		config.Logger = zap.New(slogCore{o.logger.Handler()})
	}
	return dial(ctx, config, o)
}

// clientConfig reads the client's configuration from a URL, and refuses a URL with
// anything else in it.
func clientConfig(u *driver.URL) (clientv3.Config, error) {
	keepalive := u.Duration("keepalive", leastKeepalive)
	config := clientv3.Config{
		Endpoints:   u.HostsWithPort("2379"),
		DialTimeout: u.Duration("dial_timeout", 5*time.Second),
		// A connection is given up 5 s after a probe that is not answered.
		DialKeepAliveTime: keepalive, DialKeepAliveTimeout: 5 * time.Second,
		Username: u.User, Password: u.Secret("password_file", u.Password),
		TLS: tlsurl.Config(u, u.Scheme == "etcds"),
		// With these the connection is back a second or two after an outage. By
		// default gRPC pauses for up to two minutes, and waits for twenty seconds for
		// a connection whose first packet was lost.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}), grpc.WithChainUnaryInterceptor(noteRepeated)},
	}
	if keepalive < leastKeepalive {
		u.Refuse(fmt.Errorf("parameter keepalive=%v: want at least %v, which is what gRPC allows", keepalive, leastKeepalive))
	}
	if err := u.Done(); err != nil {
		return config, err
	}
	switch {
	case len(u.Hosts) == 0:
		return config, fmt.Errorf("%s: want at least one host", u.Redacted())
	case u.Path != "" && u.Path != "/":
		return config, fmt.Errorf("path %q: want none; what all keys begin with is the parameter prefix", u.Path)
	case (u.HasUser || config.Password != "") && (config.Username == "" || config.Password == ""):
		return config, errors.New("user: want user:password, neither empty, or user and the parameter password_file")
	}
	secureEndpoints(config.Endpoints, config.TLS)
	return config, nil
}

// secureEndpoints marks the addresses as https if c is set.
func secureEndpoints(endpoints []string, c *tls.Config) {
	for i, host := range endpoints {
		if c != nil {
			endpoints[i] = "https://" + host
		}
	}
}

func dial(ctx context.Context, config clientv3.Config, o options) (*Driver, error) {
	// With a user, clientv3.New logs in before it returns, and knows no context but
	// the one of the client's whole life.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	config.Context = life
	stop := context.AfterFunc(ctx, end)
	client, err := clientv3.New(config)
	if !stop() { // ctx has ended
		if err == nil {
			err = client.Close()
		}
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		end()
		if config.Username != "" {
			err = fmt.Errorf("no token from %s: %w", strings.Join(config.Endpoints, ", "), err)
		}
		return nil, fmt.Errorf("etcd: %w", err)
	}
	d := newDriver(client, o)
	d.owned.Store(client)
	context.AfterFunc(client.Ctx(), end)
	return d, nil
}
