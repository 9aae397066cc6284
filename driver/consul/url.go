package consul

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-cleanhttp"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

func init() {
	driver.Register("consul", open)
	driver.Register("consuls", open)
}

// open makes a driver from consul:// or consuls://. It sends no request.
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	cfg := &api.Config{
		Datacenter: u.Param("dc", ""),
		Token:      u.Secret("token_file", cmp.Or(u.Param("token", ""), u.Password)),
		Namespace:  u.Param("namespace", ""),
		Partition:  u.Param("partition", ""),
	}
	opts := []Option{
		WithPrefix(u.Param("prefix", "locker")), WithMinTTL(u.Duration("min_ttl", minTTL)),
		WithQueryWait(u.Duration("wait", queryWait)), WithNamespace(cfg.Namespace), WithPartition(cfg.Partition),
	}
	secure := tlsurl.Config(u, u.Scheme == "consuls")
	transport := newTransport(u)
	if err := errors.Join(u.Done(), checkURL(u)); err != nil {
		return nil, err
	}
	address := api.DefaultConfig().Address // of the environment
	if hosts := u.HostsWithPort("8500"); len(hosts) == 1 {
		address, cfg.Address, cfg.Scheme = hosts[0], hosts[0], "http"
	}
	if secure != nil {
		cfg.Scheme, transport.TLSClientConfig = "https", secure
		if err := addEnvironment(secure); err != nil {
			return nil, err
		}
	}
	cfg.Transport = transport
	client, err := api.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	d, err := New(client, opts...)
	if err != nil {
		return nil, err
	}
	d.name = "consul " + address
	d.owned = transport.CloseIdleConnections
	return d, nil
}

// addEnvironment adds the TLS settings of Consul's own variables that the URL does not
// have. If the URL has a ca, the variables do not turn off the server's verification.
func addEnvironment(c *tls.Config) error {
	env, err := api.SetupTLSConfig(&api.DefaultConfig().TLSConfig)
	if err != nil {
		return fmt.Errorf("TLS by the CONSUL_* variables: %w", err)
	}
	if c.RootCAs == nil {
		c.RootCAs, c.InsecureSkipVerify = env.RootCAs, c.InsecureSkipVerify || env.InsecureSkipVerify
	}
	if len(c.Certificates) == 0 {
		c.Certificates = env.Certificates
	}
	c.ServerName = cmp.Or(c.ServerName, env.ServerName)
	return nil
}

// newTransport makes the connections. As many as pool_size are kept while they are
// idle. Those in use are not limited, because waiters need some.
func newTransport(u *driver.URL) *http.Transport {
	dialer := &net.Dialer{
		Timeout:   u.Duration("dial_timeout", 30*time.Second),
		KeepAlive: u.Duration("keepalive", 30*time.Second),
	}
	transport := cleanhttp.DefaultPooledTransport()
	transport.DialContext = dialer.DialContext
	transport.MaxIdleConnsPerHost = u.Int("pool_size", 256, 1)
	transport.MaxIdleConns = max(transport.MaxIdleConns, transport.MaxIdleConnsPerHost)
	transport.DisableCompression = true // a queue is a few kilobytes: to compress it takes longer than to send it
	// With HTTP/2 all requests would hang for minutes on one dead connection. With
	// HTTP/1.1 a request that is not answered in time closes its own connection.
	transport.ForceAttemptHTTP2 = false
	return transport
}

// checkURL refuses parts of a URL that contradict each other.
func checkURL(u *driver.URL) error {
	switch {
	case len(u.Hosts) > 1:
		return fmt.Errorf("%d hosts: want one agent, usually the one on this machine, or a load balancer", len(u.Hosts))
	case strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("path %q: want none; the keys' prefix is the parameter prefix", u.Path)
	case u.Password != "" && u.Param("token", "") != "":
		return errors.New("two tokens, one as the password and one as the parameter token: want one of them")
	case u.User != "":
		return errors.New("a user is given: the token is the password, as in consul://:TOKEN@host, or the parameter token_file")
	}
	return nil
}
