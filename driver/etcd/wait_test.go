package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// waitAt begins to wait for a name and returns when the ticket is queued.
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

// A writer behind more readers than its put can read waits for all of them,
// although it knows of none of them when it is queued.
func TestWriterBehindACrowd(t *testing.T) {
	t.Parallel()
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

// A fixed lease runs for its whole TTL from the grant, even after a wait.
func TestFixedLeaseAfterAWait(t *testing.T) {
	t.Parallel()
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

// Ten thousand waiters on one name in one process need one watch, and a
// release costs the same as with ten.
func TestManyWaiters(t *testing.T) {
	if testing.Short() {
		t.Skip("queues ten thousand")
	}
	srv := testbed.SharedEtcd(t)
	var c requests
	d := newDriver(t, c.client(t, srv.Addr()), etcd.WithPrefix(randomPrefix()))
	const n = 10000
	h := acquire(t, d, request("crowd", "id-first", time.Minute))
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	granted := make(chan driver.Hold, n)
	var joined, wg sync.WaitGroup
	begun := time.Now()
	slots := make(chan struct{}, 64)
	for i := range n {
		joined.Add(1)
		slots <- struct{}{}
		r := request("crowd", fmt.Sprint("id-", i), time.Minute)
		r.Joined = func() { <-slots; joined.Done() }
		wg.Go(func() {
			if g, err := d.Acquire(ctx, r); err == nil {
				granted <- r.Hold(g.Token)
			}
		})
	}
	joined.Wait()
	took := time.Since(begun)
	each := (heap() - before) / n
	sent := c.unary.Load()
	const grants = 200
	begun = time.Now()
	for range grants {
		release(t, d, h)
		h = <-granted
	}
	t.Logf("%d waiters joined in %v, %d bytes each; %v a grant, %.2f requests", n, took.Round(time.Millisecond), each,
		(time.Since(begun) / grants).Round(time.Microsecond), float64(c.unary.Load()-sent)/grants)
	if each > 4096 { // besides the stacks of the callers
		t.Errorf("%d bytes a waiter, want at most 4 KiB", each)
	}
	if sent := c.unary.Load() - sent; sent > grants+20 {
		t.Errorf("%d releases took %d requests", grants, sent)
	}
	cancel()
	wg.Wait()
}
