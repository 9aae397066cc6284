package zookeeper

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestSweep leaves empty names, as processes that die together do: a driver removes
// them, unless another one has swept lately, and removes nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, events := dial(t, testbed.SharedZookeeper(t).Addr())
	d, err := New(conn, events, WithPrefix("t/"+rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	r := driver.Request{Name: "in/use", ID: "sweep-1", TTL: time.Minute, Renewed: true, Wait: true}
	g, err := d.Acquire(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	leave := func(nodes ...string) {
		for _, n := range nodes {
			if _, err := conn.Create(d.base+"/"+n, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() []string {
		names, _, err := conn.Children(d.base)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return slices.DeleteFunc(names, func(n string) bool { return n == protocolNode })
	}
	now := time.Now()
	sweep := func(at time.Time, want ...string) {
		t.Helper()
		if err := d.sweep(ctx, at); err != nil {
			t.Fatal(err)
		}
		if got := left(); !slices.Equal(got, want) {
			t.Errorf("left %v, want %v", got, want)
		}
	}
	leave("dead-1", "dead%202", "not ours")
	sweep(now, "in%2Fuse", "not ours")
	leave("dead-3")
	sweep(now.Add(10*time.Second), "dead-3", "in%2Fuse", "not ours")
	names, err := d.List(ctx)
	if err != nil || !slices.Equal(names, []string{"in/use"}) {
		t.Errorf("names %v, %v", names, err)
	}
	sweep(now.Add(time.Hour), "in%2Fuse", "not ours")
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	sweep(now.Add(2*time.Hour), "not ours")
}
