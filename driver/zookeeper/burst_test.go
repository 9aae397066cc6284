package zookeeper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
)

// TestManyDeletedAtOnce: the nodes of many fixed leases are deleted at once. Each holder is
// notified, though the client has no room for as many events as come.
func TestManyDeletedAtOnce(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(at string) *zookeeper.Driver{
		"Open": func(at string) *zookeeper.Driver { return open(t, at).(*zookeeper.Driver) },
		"New": func(at string) *zookeeper.Driver {
			_, d := own(t, session, zookeeper.WithPrefix(base(at)))
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := storeURL(t)
			deleteAtOnce(t, at, open(at))
		})
	}
}

func deleteAtOnce(t *testing.T, at string, d *zookeeper.Driver) {
	t.Helper()
	ctx := ctxFor(t, time.Minute)
	const n = 300
	lost := make(chan driver.Hold, n)
	d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	var all []any
	for i := range n {
		r := request(fmt.Sprint("x", i), fmt.Sprint("held-", i))
		r.Renewed = false
		must[driver.Grant](t)(d.Acquire(ctx, r))
		all = append(all, &zk.DeleteRequest{Path: fmt.Sprintf("%s/x%d/held-%d_x_0000000000", base(at), i, i), Version: -1})
	}
	watchedBy(t, fmt.Sprintf("%s/x%d/held-%d_x_0000000000", base(at), n-1, n-1), 1)
	if err := d.Ping(ctx); err != nil { // now the client, too, knows of its watches
		t.Fatal(err)
	}
	if _, err := admin(t).Multi(all...); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		select {
		case <-lost:
		case <-ctx.Done():
			t.Fatalf("%d of %d holders were notified", i, n)
		}
	}
}
