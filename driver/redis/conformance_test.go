package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
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
	h.Parallel = true
	conformance.Run(t, h)
}

// wholeCluster is all masters of a Cluster at once: the store as a whole.
type wholeCluster struct {
	t       *testing.T
	members []*testbed.Server
}

func (w wholeCluster) each(f func(*testbed.Server)) {
	var all sync.WaitGroup
	for _, s := range w.members {
		all.Go(func() { f(s) })
	}
	all.Wait()
}

func (w wholeCluster) Kill()  { w.each((*testbed.Server).Kill) }
func (w wholeCluster) Pause() { w.each((*testbed.Server).Pause) }

// Start returns when the masters serve: they have to find each other first.
func (w wholeCluster) Start() {
	w.each((*testbed.Server).Start)
	w.serves()
}

// Resume is Start for masters that were paused, and may take each other for dead.
func (w wholeCluster) Resume() {
	w.each((*testbed.Server).Resume)
	w.serves()
}

func (w wholeCluster) serves() {
	w.each(func(s *testbed.Server) {
		c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
		defer c.Close()
		until(w.t, func() error {
			info, err := c.ClusterInfo(context.Background()).Result()
			if err == nil && !strings.Contains(info, "cluster_state:ok") {
				err = errors.New(info)
			}
			return err
		})
	})
}

// openClusterLink opens a driver whose way to the masters can be cut. A Cluster tells its
// clients the addresses of its masters, so the client turns them into those of the proxies.
func openClusterLink(t *testing.T, cluster *testbed.Ensemble, prefix string) (driver.Driver, conformance.Link, error) {
	t.Helper()
	set := cluster.Proxies(t)
	way := make(map[string]string)
	for i, m := range cluster.Members {
		way[m.Addr()] = set.Proxies[i].Addr()
	}
	c := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: cluster.Addrs(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, way[addr])
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	d, err := redis.New(c, redis.WithPrefix(prefix))
	return d, set, err
}

func clusterHarness(t *testing.T) conformance.Harness {
	t.Helper()
	cluster := testbed.RedisCluster(t, testbed.Kept())
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	const prefix = "conformance"
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, cluster.URL(), prefix) },
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			return openClusterLink(t, cluster, prefix)
		},
		Server:   wholeCluster{t, cluster.Members},
		Complete: true,
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
	}
}

func TestConformanceCluster(t *testing.T) {
	testbed.Nightly(t, "run it after a change to the keys of scripts, or to how the driver finds a cluster's nodes")
	h := clusterHarness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return clusterHarness(t), nil }
	conformance.Run(t, h)
}
