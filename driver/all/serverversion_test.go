package all_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestServerVersion(t *testing.T) {
	t.Parallel()
	shared := func(server func(testing.TB) *testbed.Server) func(testing.TB) string {
		return func(tb testing.TB) string { return server(tb).URL() }
	}
	for _, c := range []struct {
		store, want string
		url         func(testing.TB) string
	}{
		{"redis", `Redis \d+\.\d+\.\d+`, shared(testbed.SharedRedis)},
		{"etcd", `etcd 3\.\d+\.\d+`, shared(testbed.SharedEtcd)},
		{"consul", `Consul 1\.\d+\.\d+`, shared(testbed.SharedConsul)},
		{"zookeeper", `ZooKeeper 3\.\d+\.\d+`, shared(testbed.SharedZookeeper)},
		{"memcached", `Memcached 1\.\d+\.\d+`, shared(testbed.SharedMemcached)},
		{"nats", `NATS 2\.\d+\.\d+`, shared(testbed.SharedNats)},
		{"postgres", `PostgreSQL \d+\.\d+`, shared(testbed.SharedPostgres)},
		{"mariadb", `MariaDB \d+\.\d+\.\d+`, shared(testbed.SharedMariaDB)},
		{"redlock", `Redis \d+\.\d+\.\d+`, func(tb testing.TB) string {
			return "redlock://" + strings.Join(testbed.RedisN(tb, 3).Addrs(), ",")
		}},
		{"all", ``, func(testing.TB) string { return "all://(memory://)(memory://)" }},           // which has several servers, and asks none
		{"dynamodb", ``, func(testing.TB) string { return "dynamodb://locks?region=eu-west-1" }}, // which has none to ask for
		{"memory", ``, func(testing.TB) string { return "memory://" }},
	} {
		t.Run(c.store, func(t *testing.T) {
			t.Parallel()
			l, err := locker.Open(t.Context(), c.url(t))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			got, err := l.ServerVersion(t.Context())
			if (err != nil) != errors.Is(err, locker.ErrUnsupported) || (err == nil) != (c.want != "") ||
				!regexp.MustCompile("^"+c.want+"$").MatchString(got) {
				t.Errorf("the version is %q, error %v; want %s", got, err, c.want)
			}
		})
	}
}
