package dynamodb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestConformance runs on a DynamoDB Local in memory: a request takes it half of the processor's time. It is cut off, paused, and
// killed and started again where it has a file.
func TestConformance(t *testing.T) {
	h := harness(t, testbed.DynamoDB(t))
	h.NewServer = func(context.Context) (conformance.Harness, error) {
		return harness(t, testbed.DynamoDB(t, testbed.Faults())), nil
	}
	h.AtOnce = 6 // more keep its processor busy
	h.Parallel = true
	conformance.Run(t, h)
}

func harness(t *testing.T, srv *testbed.Server) conformance.Harness {
	const query = "&prefix=conformance"
	c, _ := client(t, srv)
	warm(t, srv)
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, srv.URL()+query) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := open(ctx, p.URL()+query)
			return d, p, err
		},
		Server:   srv,
		Complete: true,
		Keys:     func(ctx context.Context) (int, error) { return live(ctx, c, "conformance") },
	}
}

// warm sends requests until the server has compiled its code: its first requests take a hundred times as long as later
// ones.
func warm(t *testing.T, srv *testbed.Server) {
	t.Helper()
	var clients sync.WaitGroup
	for i := range 4 {
		d, _ := made(t, srv, dynamodb.WithPrefix("warm"))
		clients.Go(func() {
			r := request(fmt.Sprint(i), "a")
			for range 60 {
				g, err := d.Acquire(t.Context(), r)
				if err == nil {
					err = d.Release(t.Context(), r.Hold(g.Token))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
}
