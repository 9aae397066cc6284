package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// waitAt begins to wait for a name and returns when the ticket stands in line.
func waitAt(t *testing.T, d driver.Driver, r driver.Request) <-chan driver.Grant {
	t.Helper()
	joined, granted := make(chan struct{}), make(chan driver.Grant, 1)
	r.Joined = func() { close(joined) }
	go func() {
		g, err := d.Acquire(t.Context(), r)
		if err == nil {
			granted <- g
		}
	}()
	select {
	case <-joined:
	case <-granted:
		t.Fatalf("%q was granted at once", r.Name)
	}
	return granted
}

// A writer behind more readers than are read with its put waits for all of
// them, though it knows of none when it joins.
func TestWriterBehindACrowd(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	prefix := etcd.WithPrefix(randomPrefix())
	readers, writer := newDriver(t, newClient(t, srv.Addr()), prefix), newDriver(t, newClient(t, srv.Addr()), prefix)
	const n = 600
	hs := make([]driver.Hold, n)
	each(n, func(i int) {
		r := request("crowd", fmt.Sprint("id-", i), 30*time.Second)
		r.Shared = true
		g, err := readers.Acquire(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
		hs[i] = r.Hold(g.Token)
	})
	w := request("crowd", "id-w", 30*time.Second)
	granted := waitAt(t, writer, w)
	each(n-1, func(i int) { release(t, readers, hs[i]) })
	select {
	case <-granted:
		t.Fatal("the writer was granted while a reader holds")
	case <-time.After(300 * time.Millisecond):
	}
	release(t, readers, hs[n-1])
	g := <-granted
	release(t, writer, w.Hold(g.Token))
}

// A fixed lease runs for its whole TTL from the grant, also after a wait.
func TestFixedLeaseAfterAWait(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	d := newDriver(t, newClient(t, srv.Addr()), etcd.WithPrefix(randomPrefix()))
	h := acquire(t, d, request("fixed", "id-h", 30*time.Second))
	r := request("fixed", "id-w", 30*time.Second)
	r.Renewed = false
	granted := waitAt(t, d, r)
	released := time.Now()
	release(t, d, h)
	g := <-granted
	if g.Asked.Before(released) {
		t.Errorf("the lease counts from %v before the holder released", released.Sub(g.Asked))
	}
	left, err := d.Inspect(t.Context(), "fixed")
	if err != nil || len(left) != 1 || left[0].Remaining < 28*time.Second {
		t.Errorf("the line is %+v, %v", left, err)
	}
	release(t, d, r.Hold(g.Token))
}
