package zookeeper

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// inside makes a driver whose inside a test looks at, and its connection.
func inside(t *testing.T) (context.Context, *Driver) {
	t.Helper()
	return insideAt(t, testbed.SharedZookeeper(t).Addr())
}

func insideAt(t *testing.T, addr string) (context.Context, *Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	conn, events, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogInfo(false), zk.WithLogger(clientLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d, err := New(conn, events, WithPrefix("t/"+rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return ctx, d
}

// join puts a ticket in the line of x, and returns the path of its node.
func join(ctx context.Context, t *testing.T, d *Driver, r driver.Request) string {
	t.Helper()
	j := &joining{d: d, r: r, parent: d.parent(r.Name), began: time.Now()}
	if _, err := j.join(ctx); err != nil {
		t.Fatal(err)
	}
	return j.t.path
}

// TestWatchOfAnother has a waiter find the watch that another has set on their
// line after it looked at it: it is to look again, since the watch does not tell
// what happened between.
func TestWatchOfAnother(t *testing.T) {
	ctx, d := inside(t)
	r := driver.Request{Name: "x", Shared: true, Limit: 2, TTL: time.Minute, Renewed: true, Wait: true}
	var paths []string
	for _, id := range []string{"a-1", "a-2", "a-3"} {
		r.ID = id
		paths = append(paths, join(ctx, t, d, r))
	}
	parent := parentOf(paths[0])
	look := func() *view {
		v, err := d.list(ctx, parent)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	watch := func(v *view) <-chan zk.Event {
		ch, err := d.watchLine(ctx, parent, v)
		if err != nil {
			t.Fatal(err)
		}
		return ch
	}
	before := look()
	if _, err := d.dropTicket(paths[0], plain); err != nil {
		t.Fatal(err)
	}
	if fired(watch(look())) {
		t.Error("the watch of one who has seen the line as it is has fired")
	}
	if !fired(watch(before)) {
		t.Error("one who has seen the line as it was before waits for the next change")
	}
	if fired(watch(look())) {
		t.Error("the watch has fired without a change")
	}
}

// TestOwnGhostAhead has a create that was given up arrive just before the one
// after it: a request that does not wait is not refused because of itself.
func TestOwnGhostAhead(t *testing.T) {
	ctx, d := inside(t)
	r := driver.Request{Name: "x", ID: "ghost-1", TTL: time.Minute, Renewed: true, Wait: true}
	ghost, own := join(ctx, t, d, r), join(ctx, t, d, r)
	r.Wait = false
	if ghost == own {
		t.Fatal("the second create found the first")
	}
	g, err := d.await(ctx, d.ticketOf(r.Hold(0)), r, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	nodes, _, err := d.conn.Children(parentOf(own))
	if err != nil || len(nodes) != 1 || !strings.HasSuffix(own, nodes[0]) {
		t.Errorf("nodes %v (error %v), want %s alone", nodes, err, own)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
}
