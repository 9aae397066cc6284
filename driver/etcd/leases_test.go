package etcd_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// All locks of one TTL share a lease. Two requests renew many of them: while the lease is
// watched for losses, one that looks for some.
func TestRenewalsAreBatched(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	var c requests
	prefix := randomPrefix()
	other := newDriver(t, newClient(t, srv.Addr()), etcd.WithPrefix(prefix))
	for n, want := range map[int]int64{10: 2, 1000: 1 + 10} {
		d := newDriver(t, c.client(t, srv.Addr()), etcd.WithPrefix(prefix)) // not watched: nobody wants to be notified
		rs := takeMany(t, d, n)
		gone := rs[n/2].Hold
		if err := other.Break(t.Context(), gone.Name, gone.Token); err != nil {
			t.Fatal(err)
		}
		before := c.unary.Load()
		for i, err := range d.RenewAll(t.Context(), rs) {
			if want := i == n/2; errors.Is(err, driver.ErrLost) != want || !want && err != nil {
				t.Errorf("renewal %d of %d: %v", i, n, err)
			}
		}
		if took := 1 + c.unary.Load() - before; took != want { // the keep-alive's stream is open, or is not
			t.Errorf("%d renewals took %d requests, want %d", n, took, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	d := newDriver(t, c.client(t, srv.Addr()), etcd.WithPrefix(prefix))
	d.NotifyLoss(func(h driver.Hold, err error) { t.Errorf("%q is lost: %v", h.Name, err) })
	rs := takeMany(t, d, 1000)
	for before := int64(-1); before != c.unary.Load(); time.Sleep(2 * time.Second) { // the watch begins, and looks for all
		before = c.unary.Load()
	}
	before := c.unary.Load()
	for _, err := range d.RenewAll(t.Context(), rs) {
		if err != nil {
			t.Error(err)
		}
	}
	if took := 1 + c.unary.Load() - before; took != 2 {
		t.Errorf("1000 renewals of a watched lease took %d requests, want 2", took)
	}
}

// takeMany acquires n names.
func takeMany(t *testing.T, d driver.Driver, n int) []driver.Renewal {
	t.Helper()
	rs := make([]driver.Renewal, n)
	each(n, func(i int) {
		r := request(fmt.Sprint("name-", n, "-", i), fmt.Sprint("id-", rand.Uint64()), time.Minute)
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
		rs[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL}
	})
	return rs
}

// When the shared lease is gone, all its holders and waiters are notified at once.
func TestLeaseRevokedByHand(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	client := newClient(t, srv.Addr())
	prefix := randomPrefix()
	notified := make(chan driver.Hold, 10)
	d := newDriver(t, client, etcd.WithPrefix(prefix))
	d.NotifyLoss(func(h driver.Hold, err error) {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("notified of %v", err)
		}
		notified <- h
	})
	hs := map[string]driver.Hold{}
	for i := range 3 {
		h := acquire(t, d, request(fmt.Sprint("held-", i), fmt.Sprint("id-", i), time.Minute))
		hs[h.ID] = h
	}
	joined, ended := make(chan struct{}), make(chan error, 1)
	waiter := request("held-0", "id-w", time.Minute)
	waiter.Joined = func() { close(joined) }
	go func() {
		_, err := d.Acquire(t.Context(), waiter)
		ended <- err
	}()
	<-joined
	resp, err := client.Get(t.Context(), prefix+"/held", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if kv.Lease != resp.Kvs[0].Lease {
			t.Errorf("tickets of one TTL are on leases %x and %x", kv.Lease, resp.Kvs[0].Lease)
		}
	}
	begun := time.Now()
	if _, err := client.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, driver.ErrLost) {
		t.Errorf("the waiter got %v, want ErrLost", err)
	}
	for range 3 {
		h := <-notified
		if h != hs[h.ID] {
			t.Errorf("notified of %+v, want %+v", h, hs[h.ID])
		}
		delete(hs, h.ID)
	}
	t.Logf("notified after %v", time.Since(begun).Round(time.Millisecond))
	h := acquire(t, d, request("held-0", "id-after", time.Minute))
	release(t, d, h)
}

// After Close nothing is left but the protocol version, not even a lease.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults())
	client := newClient(t, srv.Addr())
	d := newDriver(t, client)
	for i := range 5 {
		r := request(fmt.Sprint("n", i), fmt.Sprint("id-", i), time.Duration(10+i)*time.Minute)
		r.Renewed = i%2 == 0
		acquire(t, d, r)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := keys(t.Context(), srv.Addr()); n != 1 || err != nil {
		t.Errorf("%d keys and leases are left: %v", n, err)
	}
}
