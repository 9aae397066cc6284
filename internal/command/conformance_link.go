package command

import (
	"cmp"
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/driver"
)

// ports are the default ports of the stores that can be reached through a proxy. The
// clients of Sentinel and of a Cluster learn addresses from the servers and would go
// around it; a server with TLS has a name that the proxy does not have.
var ports = map[string]string{
	"consul": "8500", "etcd": "2379", "memcached": "11211", "mysql": "3306", "nats": "4222", "postgres": "5432", "postgresql": "5432",
	"redis": "6379", "redlock": "6379", "zookeeper": "2181",
}

// withKeys are the stores whose prefix is the beginning of their keys. On others it names
// tables, which would have to be created for the suite, and would stay.
var withKeys = regexp.MustCompile(`^(redis|rediss|redis\+[a-z]+|redlock|etcds?|consuls?|zookeepers?|memcached|nats|dynamodb)://[^(]`)

// withSuitePrefix returns the URL with a prefix of the suite's own, so that its strange names are not among
// those in use, and nobody's list shows them. It is always the same: some stores keep a key
// for each prefix.
func withSuitePrefix(address string) string {
	base, text, _ := strings.Cut(address, "?")
	query, err := url.ParseQuery(text)
	if err != nil || !withKeys.MatchString(address) {
		return address // what is wrong is reported when it is opened
	}
	query.Set("prefix", cmp.Or(query.Get("prefix"), "locker")+"-conformance")
	query.Del("key_form") // it may have no prefix in it
	return base + "?" + query.Encode()
}

// harnessOf is the store of a URL, which has been opened before, for the suite. done closes the proxies.
func harnessOf(ctx context.Context, address string) (h conformance.Harness, done func()) {
	h.Open = func(ctx context.Context) (driver.Driver, error) {
		u, err := parse(address)
		if err != nil {
			return nil, err
		}
		return driver.Open(ctx, u)
	}
	u, _ := parse(address)
	ls := &links{address: address}
	if _, plain := ports[u.Scheme]; plain && len(u.Hosts) > 0 && ls.work(ctx) {
		h.OpenLink = ls.open
	}
	return h, ls.close
}

// parse reads a URL, and accepts the core's parameter ttl.
func parse(address string) (*driver.URL, error) {
	u, err := driver.ParseURL(address)
	if err != nil {
		return nil, err
	}
	u.Param("ttl", "")
	return u, nil
}

// links opens drivers behind proxies.
type links struct {
	address string

	mu      sync.Mutex
	proxies link.Proxies
}

// open opens a driver each of whose addresses is a proxy's.
func (l *links) open(ctx context.Context) (driver.Driver, conformance.Link, error) {
	u, err := parse(l.address)
	if err != nil {
		return nil, nil, err
	}
	var way link.Proxies
	for _, host := range u.HostsWithPort(ports[u.Scheme]) {
		p, err := link.Start(host)
		if err != nil {
			return nil, nil, err
		}
		way = append(way, p)
	}
	l.mu.Lock()
	l.proxies = append(l.proxies, way...)
	l.mu.Unlock()
	u.Hosts = way.Addrs()
	d, err := driver.Open(ctx, u)
	return d, way, err
}

// work reports whether the store can be reached through a proxy.
func (l *links) work(ctx context.Context) bool {
	d, _, err := l.open(ctx)
	if err != nil {
		return false
	}
	c := locker.New(d)
	defer c.Close()
	return c.Ping(ctx) == nil
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxies.Close()
}
