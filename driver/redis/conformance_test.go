package redis_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// open opens a driver by URL.
func open(ctx context.Context, address, prefix string) (driver.Driver, error) {
	u, err := driver.ParseURL(address + "?prefix=" + url.QueryEscape(prefix))
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// countKeys counts the keys with a prefix, without those that are kept for ever:
// the keys of the last token, and of the protocol version.
func countKeys(ctx context.Context, c goredis.Cmdable, prefix string) (int, error) {
	n := 0
	it := c.Scan(ctx, 0, prefix+":*", 1000).Iterator()
	for it.Next(ctx) {
		if !strings.HasPrefix(it.Val(), prefix+":fence") && it.Val() != prefix+":protocol" {
			n++
		}
	}
	return n, it.Err()
}

// notShort skips, with -short, a test that takes long and shows little more.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short")
	}
}

func harness(t *testing.T) conformance.Harness {
	t.Helper()
	srv := testbed.Redis(t, testbed.Kept(), testbed.Faults())
	c := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	const prefix = "conformance"
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL(), prefix) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL(), prefix)
			return d, p, err
		},
		Server:   srv,
		Complete: true,
		Keys:     func(ctx context.Context) (int, error) { return countKeys(ctx, c, prefix) },
	}
}

func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	conformance.Run(t, h)
}

func TestConformanceCluster(t *testing.T) {
	testbed.Nightly(t, "run it after a change to the keys of scripts, or to how the driver finds a cluster's nodes")
	cluster := testbed.RedisCluster(t)
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	const prefix = "conformance"
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, cluster.URL(), prefix) },
		Keys: func(ctx context.Context) (int, error) {
			counts := make(chan int, len(cluster.Members))
			err := c.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error {
				n, err := countKeys(ctx, m, prefix)
				counts <- n
				return err
			})
			close(counts)
			sum := 0
			for n := range counts {
				sum += n
			}
			if err != nil {
				return 0, fmt.Errorf("count keys: %w", err)
			}
			return sum, nil
		},
	})
}
