package nats_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// harness starts a server.
func harness(t *testing.T) conformance.Harness {
	t.Helper()
	srv := testbed.Nats(t, testbed.Faults())
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
		Keys:     func(ctx context.Context) (int, error) { return countKeys(ctx, srv.Addr(), "conformance") },
	}
}

func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	h.Parallel = true
	conformance.Run(t, h)
}

// TestConformanceCluster runs on a bucket with three replicas, where readings have to wait for the writes of others.
func TestConformanceCluster(t *testing.T) {
	testbed.Nightly(t, "run it after a change to the requests to the store")
	e := cluster(t) // with its bucket: on a busy machine that takes longer than a request may
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, e.URL()) },
	})
}
