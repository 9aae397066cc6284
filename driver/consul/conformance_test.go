package consul_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// open opens a driver by URL, as a process of its own would.
func open(ctx context.Context, url string) (driver.Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// link is a testbed.Proxy with the methods that conformance needs.
type link struct{ *testbed.Proxy }

// Sessions of one second, instead of Consul's default of ten, make the suite ten times
// shorter. The driver's rules do not change.
const shortest = time.Second

// harness starts a server, and returns a harness on it.
func harness(t *testing.T) conformance.Harness {
	srv := testbed.Consul(t, testbed.Faults(), testbed.Durable(),
		testbed.Args("-hcl", fmt.Sprintf("session_ttl_min=%q", shortest)))
	params := "?prefix=conformance&min_ttl=" + shortest.String()
	admin := newClient(t, srv.Addr())
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL()+params) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL()+params)
			return d, link{p}, err
		},
		Server:   srv,
		Complete: true,
		Keys: func(ctx context.Context) (int, error) {
			keys, _, err := admin.KV().Keys("conformance/", "", (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
			return len(keys), err
		},
	}
}

func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	h.Parallel = true
	conformance.Run(t, h)
}
