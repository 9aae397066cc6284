package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockerproject/locker/driver"
)

func init() {
	driver.Register("etcd", openURL)
	driver.Register("etcds", openURL)
}

// openURL makes a driver with a client of its own. See the package comment for
// the parameters.
func openURL(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	var (
		prefix  = u.Param("prefix", DefaultPrefix)
		timeout = u.Duration("dial_timeout", 5*time.Second)
		push    = u.Bool("loss_watch", true)
		files   = tlsFiles{
			ca: u.Param("ca", ""), cert: u.Param("cert", ""), key: u.Param("key", ""),
			serverName: u.Param("server_name", ""), insecure: u.Bool("insecure", false),
		}
	)
	if err := u.Done(); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, fmt.Errorf("%s: want at least one host", u.Redacted())
	}
	if u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("path %q: want none; what all keys begin with is the parameter prefix", u.Path)
	}
	if u.HasUser && (u.User == "" || u.Password == "") {
		return nil, errors.New("user: want user:password, neither empty")
	}
	config := clientv3.Config{
		Endpoints:   u.HostsWithPort("2379"),
		DialTimeout: timeout,
		// A connection that carries nothing is given up within 15 s. etcd
		// allows a probe every five seconds.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		Username: u.User, Password: u.Password,
		Logger: zap.NewNop(), // errors are returned
		// After an outage the connection is back within a second or two: gRPC by
		// itself pauses for up to two minutes, and waits for twenty seconds for a
		// connection whose first packet was lost.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		})},
	}
	if u.Scheme == "etcds" {
		var err error
		if config.TLS, err = files.config(); err != nil {
			return nil, err
		}
		for i, host := range config.Endpoints {
			config.Endpoints[i] = "https://" + host
		}
	} else if files != (tlsFiles{}) {
		return nil, errors.New("ca, cert, key, server_name and insecure are for etcds://")
	}
	if _, err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	return dial(ctx, config, prefix, push)
}

func dial(ctx context.Context, config clientv3.Config, prefix string, push bool) (driver.Driver, error) {
	// With a user the client asks for a token before it is there, and knows no
	// other context than that of all its life.
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
	opts := []Option{WithPrefix(prefix)}
	if !push {
		opts = append(opts, WithoutLossWatch())
	}
	d, err := New(client, opts...)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	d.owned = true
	context.AfterFunc(client.Ctx(), end)
	return d, nil
}

// tlsFiles are the TLS parameters of a URL.
type tlsFiles struct {
	ca, cert, key string // PEM files
	serverName    string
	insecure      bool
}

func (f tlsFiles) config() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: f.serverName,
		InsecureSkipVerify: f.insecure, //nolint:gosec // asked for by name
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s holds no certificate in PEM", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("cert and key: want both or neither")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
