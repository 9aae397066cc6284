package zookeeper_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
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

// TestDroppedAmongOthers: the client has no room for the event of a broken lock, since events of
// queues came before that. The holder is notified.
func TestDroppedAmongOthers(t *testing.T) {
	t.Parallel()
	at, ctx := storeURL(t), ctxFor(t, 30*time.Second)
	handled, proceed := make(chan struct{}, 100), make(chan struct{})
	conn, d := own(t, session, zookeeper.WithPrefix(base(at)), zookeeper.WithEvents(func(ev zk.Event) {
		if ev.Type == zk.EventNodeChildrenChanged {
			handled <- struct{}{}
			<-proceed
		}
	}))
	lost := make(chan driver.Hold, 1)
	d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	held := request("held", "held-1")
	held.Renewed = false
	must[driver.Grant](t)(d.Acquire(ctx, held))
	node := base(at) + "/held/held-1_x_0000000000"
	watchedBy(t, node, 1)
	for i := range 10 {
		queue := fmt.Sprintf("%s/queue-%d", base(at), i)
		if _, err := conn.Create(queue, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := conn.ChildrenW(queue); err != nil { // as a waiter for a permit does
			t.Fatal(err)
		}
	}
	other := admin(t)
	for i := range 10 {
		if _, err := other.Create(fmt.Sprintf("%s/queue-%d/x", base(at), i), nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	<-handled // and the others wait in the channel, or were dropped
	answered(t, conn)
	if err := other.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	answered(t, conn)
	close(proceed)
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Error("the holder of a lock that is broken was not notified")
	}
}

// TestDeletedUnnoticed: the events of a user's connection are dropped, as all are here. A renewal is not granted to a
// ticket whose node was deleted by hand.
func TestDeletedUnnoticed(t *testing.T) {
	t.Parallel()
	at, ctx := storeURL(t), ctxFor(t, 30*time.Second)
	conn := connect(t, testbed.SharedZookeeper(t).Addr())
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, make(chan zk.Event), zookeeper.WithPrefix(base(at))))
	t.Cleanup(func() { _ = d.Close() })
	r := request("x", "held-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	node := base(at) + "/x/held-1_x_0000000000"
	watchedBy(t, node, 1)
	if err := d.Renew(ctx, r.Hold(g.Token), locker.DefaultTTL); err != nil {
		t.Errorf("renewal: %v", err)
	}
	if err := admin(t).Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	if err := d.Renew(ctx, r.Hold(g.Token), locker.DefaultTTL); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of what was deleted: %v, want ErrLost", err)
	}
}
