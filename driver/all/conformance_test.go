package all_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// ports are where stores listen of which a URL names no port.
var ports = map[string]string{
	"consul": "8500", "etcd": "2379", "memcached": "11211", "mysql": "3306", "nats": "4222", "postgres": "5432", "postgresql": "5432", "redis": "6379",
	"zookeeper": "2181",
}

// TestConformance runs the suite on somebody else's stores: LOCKER_TEST_URL is
// of any, and the others are the variables of internal/testbed. Nobody may kill
// these, so the cases that do are left to each driver's own tests, and so are
// those that count keys. The way to one that is a single address, without TLS, is cut.
func TestConformance(t *testing.T) {
	for _, store := range []string{"", "CONSUL_", "DYNAMODB_", "ETCD_", "MARIADB_", "MEMCACHED_", "MYSQL_", "NATS_", "POSTGRES_", "REDIS_", "ZOOKEEPER_"} {
		variable := "LOCKER_TEST_" + store + "URL"
		address := os.Getenv(variable)
		if address == "" {
			continue
		}
		t.Run(variable, func(t *testing.T) {
			u, err := driver.ParseURL(address)
			if err != nil {
				t.Fatal(err)
			}
			h := conformance.Harness{Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, address) }}
			if port, plain := ports[u.Scheme]; plain && len(u.Hosts) == 1 {
				h.OpenLink = func(ctx context.Context) (driver.Driver, conformance.Link, error) {
					p := testbed.NewProxy(t, u.HostsWithPort(port)[0])
					d, err := open(ctx, through(address, u.Hosts[0], p.Addr()))
					return d, p, err
				}
			}
			conformance.Run(t, h)
		})
	}
}

// open opens a driver whose locks are apart from all others of the store.
func open(ctx context.Context, address string) (driver.Driver, error) {
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	u, err := driver.ParseURL(address + separator + "prefix=conformance")
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// through is address with another host. A user and a password stand before it,
// and may read the same.
func through(address, host, other string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	return scheme + "://" + rest[:at] + strings.Replace(rest[at:end], host, other, 1) + rest[end:]
}

func TestThrough(t *testing.T) {
	for address, want := range map[string]string{
		"redis://db":               "redis://127.0.0.1:1",
		"mysql://db:db@db:33/db":   "mysql://db:db@127.0.0.1:1/db",
		"etcd://[::1]:5?prefix=::": "etcd://127.0.0.1:1?prefix=::",
	} {
		u, err := driver.ParseURL(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := through(address, u.Hosts[0], net.JoinHostPort("127.0.0.1", "1")); got != want {
			t.Errorf("%s becomes %s, want %s", address, got, want)
		}
	}
}
