package main

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/consul"
	_ "github.com/lockerproject/locker/driver/etcd"
	_ "github.com/lockerproject/locker/driver/mysql"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	_ "github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// quick is what is run of the suite on containers: who holds at once, tokens, and
// a store that is killed, started and paused. All of it takes minutes a store,
// and is what the drivers' own tests are for.
const quick = `//^(exclusion|fencing|outage)$/^(mixed|writer-alone|after-release|after-waiting|stall-while-held|tokens-after-restart)$`

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("LOCKER_TEST_REQUIRE") == "" {
		// Once need has found the image, its container is no matter of luck.
		_ = os.Setenv("LOCKER_TEST_REQUIRE", "1")
	}
	if run := flag.Lookup("test.run"); run.Value.String() == "" {
		_ = run.Value.Set(quick)
	}
	_ = os.Setenv("LOCKER_TEST_SERVERS", "containers")
	goleak.VerifyTestMain(m,
		// go-redis's own, which dials a server that is down once a second until
		// a second after its pool was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// Each driver passes the suite on its store in a container, which can be killed,
// started, paused and cut off as any server of the testbed.
func TestStores(t *testing.T) {
	for name, boot := range map[string]func(testing.TB, ...testbed.Option) *testbed.Server{
		"consul": testbed.Consul, "etcd": testbed.Etcd, "mariadb": testbed.MariaDB, "mysql": testbed.MySQL,
		"postgres": testbed.Postgres, "redis": testbed.Redis, "zookeeper": testbed.Zookeeper,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need(t, name)
			srv := boot(t, testbed.Durable(), testbed.Faults())
			conformance.Run(t, conformance.Harness{
				Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL()) },
				OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
					p := srv.Proxy(t)
					d, err := open(ctx, p.URL())
					return d, p, err
				},
				Server: srv,
			})
		})
	}
}

// need skips a test whose image is not on this machine, unless
// LOCKER_TEST_REQUIRE=all. Where it is, nothing is skipped.
func need(t *testing.T, name string) {
	t.Helper()
	image, err := imageOf(name)
	if err != nil {
		t.Fatal(err)
	}
	require := os.Getenv("LOCKER_TEST_REQUIRE")
	if err := exec.CommandContext(t.Context(), "docker", "image", "inspect", image).Run(); err != nil && require != "all" {
		t.Skipf("no image %s here (%v): with Docker, get it with docker compose --profile %s pull", image, err, name)
	}
}

func open(ctx context.Context, address string) (driver.Driver, error) {
	u, err := driver.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}
