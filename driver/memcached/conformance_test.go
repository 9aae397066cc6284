package memcached_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// harness starts a server that is cut off, paused, and ended and started again with the same memory.
// TestServerKilled tests what is lost with the memory.
func harness(t *testing.T) conformance.Harness {
	srv := newWarm(t)
	const query = "?prefix=conformance"
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL()+query) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL()+query)
			return d, p, err
		},
		Server:   srv,
		Complete: true,
		Keys:     func(context.Context) (int, error) { return countKeys(srv.Addr(), "conformance") },
	}
}

func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	h.Parallel = true
	conformance.Run(t, h)
}

// TestConformanceServers runs on several servers. That each of them forgets what expires is tested with one.
func TestConformanceServers(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short")
	}
	e := testbed.MemcachedN(t, 3)
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) {
			d, err := open(ctx, e.URL())
			if err == nil { // connections that are made later are no leak
				err = d.(driver.Pinger).Ping(ctx)
			}
			return d, err
		},
	})
}
