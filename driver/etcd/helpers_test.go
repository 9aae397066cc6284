package etcd_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
)

func randomPrefix() string { return fmt.Sprintf("t%016x", rand.Uint64()) }

// newClient makes an etcd client that is closed with the test.
func newClient(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	var c requests
	return c.client(t, addr)
}

// newDriver makes a driver that is closed with the test.
func newDriver(t *testing.T, client *clientv3.Client, opts ...etcd.Option) *etcd.Driver {
	t.Helper()
	d, err := etcd.New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// newLocker makes a Locker that is closed with the test, and its driver with it.
func newLocker(t *testing.T, d driver.Driver) *locker.Client {
	t.Helper()
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func request(name, id string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, ID: id, Owner: "me", TTL: ttl, Renewed: true, Wait: true}
}

func acquire(t *testing.T, d driver.Driver, r driver.Request) driver.Hold {
	t.Helper()
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("acquire %q: %v", r.Name, err)
	}
	return r.Hold(g.Token)
}

func release(t *testing.T, d driver.Driver, h driver.Hold) {
	t.Helper()
	if err := d.Release(t.Context(), h); err != nil {
		t.Fatalf("release %q: %v", h.Name, err)
	}
}

// count returns the number of keys under a prefix, without two that say nothing of
// tickets: that of the protocol version, which stays, and the notice key that a lease
// has once it is in use for 200 ms.
func count(t *testing.T, c *clientv3.Client, prefix string) (n int) {
	t.Helper()
	resp, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if !isProtocol(kv.Key) && !bytes.Contains(kv.Key, []byte("/#notice/")) {
			n++
		}
	}
	return n
}

func isProtocol(key []byte) bool { return bytes.HasSuffix(key, []byte("/#protocol")) }

func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func withPrefix(prefix string) etcd.Option { return etcd.WithPrefix(prefix) }

// isPut reports whether a request is a transaction that puts a ticket.
func isPut(req any) bool {
	txn, ok := req.(*etcdserverpb.TxnRequest)
	return ok && slices.ContainsFunc(txn.Success, func(op *etcdserverpb.RequestOp) bool {
		return op.GetRequestPut() != nil && !isProtocol(op.GetRequestPut().Key)
	})
}

// isRemoval reports whether a request is a transaction that deletes a ticket.
func isRemoval(req any) bool {
	txn, ok := req.(*etcdserverpb.TxnRequest)
	return ok && slices.ContainsFunc(txn.Success, func(op *etcdserverpb.RequestOp) bool { return op.GetRequestDeleteRange() != nil })
}
