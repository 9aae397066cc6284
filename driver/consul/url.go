package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-cleanhttp"

	"github.com/lockerproject/locker/driver"
)

func init() {
	driver.Register("consul", open)
	driver.Register("consuls", open)
}

// open makes a driver from consul:// or consuls://. It does not reach the server.
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	cfg := &api.Config{
		Datacenter: u.Param("dc", ""),
		Token:      u.Param("token", ""),
		Namespace:  u.Param("namespace", ""),
		Partition:  u.Param("partition", ""),
	}
	prefix, shortest := u.Param("prefix", "locker"), u.Duration("min_ttl", minTTL)
	wait := u.Duration("wait", queryWait)
	tls := api.TLSConfig{
		Address: u.Param("server_name", ""),
		CAFile:  u.Param("ca", ""), CertFile: u.Param("cert", ""), KeyFile: u.Param("key", ""),
		InsecureSkipVerify: u.Bool("insecure", false),
	}
	if err := errors.Join(u.Done(), checkURL(u, cfg, tls)); err != nil {
		return nil, err
	}
	address := api.DefaultConfig().Address // of the environment
	if hosts := u.HostsWithPort("8500"); len(hosts) == 1 {
		address, cfg.Address, cfg.Scheme = hosts[0], hosts[0], "http"
	}
	if u.Password != "" {
		cfg.Token = u.Password
	}
	if u.Scheme == "consuls" {
		cfg.Scheme, cfg.TLSConfig = "https", tls
	}
	transport := cleanhttp.DefaultPooledTransport()
	transport.MaxIdleConnsPerHost = 256
	transport.DisableCompression = true // a queue is a few kilobytes: packing them takes longer than sending
	// With HTTP/2 all requests would hang for minutes on one connection that has
	// died; with HTTP/1.1 a request that is not answered in time ends its own.
	transport.ForceAttemptHTTP2 = false
	cfg.Transport = transport
	client, err := api.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	d, err := New(client, WithPrefix(prefix), WithMinTTL(shortest), WithQueryWait(wait),
		WithNamespace(cfg.Namespace), WithPartition(cfg.Partition))
	if err != nil {
		return nil, err
	}
	d.name = "consul " + address
	d.owned = transport.CloseIdleConnections
	return d, nil
}

// checkURL refuses what the parts of a URL cannot mean together.
func checkURL(u *driver.URL, cfg *api.Config, tls api.TLSConfig) error {
	switch {
	case len(u.Hosts) > 1:
		return fmt.Errorf("%d hosts: want one agent, usually the one on this machine, or a load balancer", len(u.Hosts))
	case strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("path %q: want none; the keys' prefix is the parameter prefix", u.Path)
	case u.User != "":
		return errors.New("a user is given: the token is the password, as in consul://:TOKEN@host, or the parameter token")
	case u.Password != "" && cfg.Token != "":
		return errors.New("two tokens: one as password and one as parameter")
	case u.Scheme == "consul" && hasTLS(tls):
		return errors.New("parameters ca, cert, key, server_name and insecure: want the scheme consuls with them")
	case (tls.CertFile == "") != (tls.KeyFile == ""):
		return errors.New("parameters cert and key: want both or none")
	}
	return nil
}

func hasTLS(t api.TLSConfig) bool {
	return t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.InsecureSkipVerify || t.Address != ""
}
