package etcd_test

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func open(ctx context.Context, url string) (driver.Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// harness starts a server, and returns a harness on it.
func harness(t *testing.T) conformance.Harness {
	srv := testbed.Etcd(t, testbed.Faults())
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL()) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL())
			return d, p, err
		},
		Server:   srv,
		Complete: true,
		Keys:     func(ctx context.Context) (int, error) { return keys(ctx, srv.Addr()) },
	}
}

func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	h.Parallel = true
	conformance.Run(t, h)
}

// keys counts the keys and the leases of a server.
func keys(ctx context.Context, addr string) (int, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	resp, err := c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	leases, err := c.Leases(ctx)
	if err != nil {
		return 0, fmt.Errorf("leases: %w", err)
	}
	return int(resp.Count) + len(leases.Leases), nil
}
