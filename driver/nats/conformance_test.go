package nats_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestConformance(t *testing.T) {
	srv := testbed.Nats(t, testbed.Faults())
	const query = "?prefix=conformance"
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL()+query) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL()+query)
			return d, p, err
		},
		Server:   srv,
		Complete: true,
		Keys:     func(ctx context.Context) (int, error) { return countKeys(ctx, srv.Addr(), "conformance") },
	})
}

// TestConformanceCluster runs on a bucket with three replicas, where readings have to wait for the writes of others.
func TestConformanceCluster(t *testing.T) {
	e := cluster(t) // with its bucket: on a busy machine that takes longer than a request may
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, e.URL()) },
	})
}
