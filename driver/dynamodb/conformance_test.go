package dynamodb_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestConformance runs on a DynamoDB Local that is cut off, paused, and killed and started again with its file.
func TestConformance(t *testing.T) {
	srv := testbed.DynamoDB(t, testbed.Faults())
	const query = "&prefix=conformance"
	c, _ := client(t, srv)
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL()+query) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL()+query)
			return d, p, err
		},
		Server:   srv,
		Complete: true,
		Keys:     func(ctx context.Context) (int, error) { return live(ctx, c, "conformance") },
	})
}
