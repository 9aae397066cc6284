package zookeeper

import (
	"context"
	"crypto/rand"
	"fmt"
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
	// Others use the node of the prefix, and nodes below it.
	for _, node := range []struct {
		name  string
		flags int32
	}{{"config", 0}, {"alive", zk.FlagEphemeral}} {
		data := []byte("theirs")
		if node.flags != 0 {
			data = nil
		}
		if _, err := conn.Create(d.base+"/"+node.name, data, node.flags, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Set(d.base, []byte("theirs"), -1); err != nil {
		t.Fatal(err)
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
	sweep(now.Add(time.Minute), "alive", "config", "in%2Fuse", "not ours")
	leave("dead-3")
	sweep(time.Now().Add(10*time.Second), "alive", "config", "dead-3", "in%2Fuse", "not ours")
	names, err := d.List(ctx)
	if err != nil || !slices.Equal(names, []string{"in/use"}) {
		t.Errorf("names %v, %v", names, err)
	}
	if _, err := conn.SetACL(d.base, zk.WorldACL(zk.PermAll&^zk.PermWrite), -1); err != nil {
		t.Fatal(err)
	}
	sweep(now.Add(time.Hour), "alive", "config", "in%2Fuse", "not ours")
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	sweep(now.Add(2*time.Hour), "alive", "config", "not ours")
	if data, _, err := conn.Get(d.base); err != nil || string(data) != "theirs" {
		t.Errorf("the data of the prefix's node are %q, error %v", data, err)
	}
}

// TestSweepFromFar: after a mass end of sessions the sweep does not pay a round trip for each name.
func TestSweepFromFar(t *testing.T) {
	t.Parallel()
	const names = 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	proxy := testbed.SharedZookeeper(t).Proxy(t)
	conn, events := dial(t, proxy.Addr())
	d, err := New(conn, events, WithPrefix("t/"+rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.List(ctx); err != nil { // it is connected
		t.Fatal(err)
	}
	r := driver.Request{Name: "first", ID: "far-1", TTL: time.Minute, Renewed: true}
	if g, err := d.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	} else if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	for i := range names {
		if _, err := conn.Create(d.base+"/"+fmt.Sprint(i), nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Delay(20 * time.Millisecond)
	begun := time.Now()
	const asked = 5
	for range asked {
		if _, _, err := conn.Exists(d.base); err != nil {
			t.Fatal(err)
		}
	}
	roundTrip := time.Since(begun) / asked
	begun = time.Now()
	if err := d.sweep(ctx, begun.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > names/2*roundTrip {
		t.Errorf("the sweep of %d names took %v, with a round trip of %v", names, took, roundTrip)
	} else {
		t.Log(took, roundTrip)
	}
	if left, _, err := conn.Children(d.base); err != nil || len(left) > 1 {
		t.Errorf("%d nodes are left, error %v", len(left)-1, err)
	}
}
