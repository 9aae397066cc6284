//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/internal/testbed"
)

// A rig is one store that runs, and the ways to break it.
type rig struct {
	urls    []string // of the workers, by turns
	servers []*testbed.Server
	leader  func() *testbed.Server // nil: none
	ways    []*link.Proxy          // between the workers and the servers
	places  []place                // of the servers, in network namespaces; or none
}

// A store is how to start one, and what is known of it.
type store struct {
	name string
	// start starts it. Its members run in the places, if there are any.
	start func(b *testbed.Program, places []place) *rig
	ttls  []time.Duration
	// apart: it has members that can be parted from each other.
	apart bool
	// stepped: leases are measured by the wall clock of a server that libfaketime can run. It
	// cannot run Redis, whose allocator reads the clock before the library is ready.
	stepped bool
	// forgets: a server that is killed loses its locks, as the driver's documentation says.
	forgets bool
}

const second = time.Second

var brief = []time.Duration{2 * second, 5 * second, 10 * second}

var stores = []store{
	{name: "redis", ttls: brief, start: single(testbed.Redis, testbed.Kept())},
	{name: "sentinel", ttls: brief, apart: true, start: func(b *testbed.Program, p []place) *rig {
		e := testbed.RedisSentinel(b, append(at(p), testbed.Kept())...)
		// Without replicas the last grants before a failover may be given again.
		return &rig{urls: []string{e.URL() + "?replicas=1"}, servers: append(e.Members, e.Sentinels...), leader: e.Leader, places: p}
	}},
	{name: "redlock", ttls: brief, start: func(b *testbed.Program, _ []place) *rig {
		e := testbed.RedisN(b, 5, testbed.Kept())
		ways := e.Proxies(b)
		return &rig{urls: []string{ways.URL()}, servers: e.Members, ways: ways.Proxies}
	}},
	{name: "etcd", ttls: brief, apart: true, start: ensemble(testbed.EtcdCluster, together)},
	{name: "consul", ttls: []time.Duration{10 * second, 15 * second}, apart: true, start: ensemble(testbed.ConsulCluster, each)},
	{name: "zookeeper", ttls: brief, apart: true, start: ensemble(testbed.ZookeeperEnsemble, together)},
	{name: "nats", ttls: []time.Duration{5 * second, 20 * second}, apart: true, start: func(b *testbed.Program, p []place) *rig {
		e := testbed.NatsCluster(b, at(p)...)
		// Clients learn of all members from each, and so would pass by proxies.
		return &rig{urls: []string{e.URL()}, servers: e.Members, leader: e.Leader, places: p}
	}},
	{name: "postgres", ttls: brief, stepped: true, start: single(testbed.Postgres)},
	{name: "mysql", ttls: brief, stepped: true, start: single(testbed.MariaDB)},
	{name: "memcached", ttls: brief, forgets: true, start: single(testbed.Memcached)},
	{name: "dynamodb", ttls: []time.Duration{5 * second, 10 * second}, start: single(testbed.DynamoDB)},
	{name: "sqlite", ttls: brief, start: func(*testbed.Program, []place) *rig {
		return &rig{urls: []string{"sqlite://" + filepath.Join(os.TempDir(), "soak", "locks.db")}}
	}},
}

// single is a store of one server, behind a proxy.
func single(start func(tb testing.TB, opts ...testbed.Option) *testbed.Server, opts ...testbed.Option) func(*testbed.Program, []place) *rig {
	return func(b *testbed.Program, _ []place) *rig {
		s := start(b, append(opts, testbed.Faults())...)
		way := s.Proxy(b)
		return &rig{urls: []string{way.URL()}, servers: []*testbed.Server{s}, ways: []*link.Proxy{way.Proxy}}
	}
}

// ensemble is a store of several members, each behind a proxy.
func ensemble(start func(tb testing.TB, opts ...testbed.Option) *testbed.Ensemble, urls func(*testbed.ProxySet) []string) func(*testbed.Program, []place) *rig {
	return func(b *testbed.Program, p []place) *rig {
		e := start(b, at(p)...)
		ways := e.Proxies(b)
		return &rig{urls: urls(ways), servers: e.Members, leader: e.Leader, ways: ways.Proxies, places: p}
	}
}

// together is one URL for all members.
func together(s *testbed.ProxySet) []string { return []string{s.URL()} }

// each is a URL for each member, which clients take for their own agent.
func each(s *testbed.ProxySet) (urls []string) {
	for _, addr := range s.Addrs() {
		urls = append(urls, "consul://"+addr)
	}
	return urls
}
