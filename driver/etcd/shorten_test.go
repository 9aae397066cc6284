package etcd_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// A ticket with a minimum hold, whose lease is longer, is passed on after the hold. It
// keeps its number, and so its place in the queue.
func TestShorten(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	client := newClient(t, srv.Addr())
	prefix := randomPrefix()
	d, err := etcd.New(client, etcd.WithPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	const hold = 2 * time.Second
	r := request("job", "id-job", time.Minute)
	r.MinHold = hold
	h := acquire(t, d, r)
	next := newDriver(t, client, etcd.WithPrefix(prefix))
	granted := waitAt(t, next, request("job", "id-next", 30*time.Second))
	var took time.Duration
	all := testbed.Elapsed(func() {
		begun := time.Now()
		if err := d.Shorten(t.Context(), h, hold); err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(t.Context(), prefix+"/job", append(clientv3.WithFirstCreate(), clientv3.WithPrefix())...)
		if err != nil || len(resp.Kvs) != 1 || uint64(resp.Kvs[0].CreateRevision) != h.Token {
			t.Errorf("first in the queue is %v, %v, want ticket %d", resp.Kvs, err, h.Token)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if g := <-granted; g.Token <= h.Token {
			t.Errorf("token %d after %d", g.Token, h.Token)
		}
		took = time.Since(begun)
	})
	if took < hold || all > d.Bounds(hold).Crash {
		t.Errorf("passed on after %v, want %v at least, and %v at most", took, hold, d.Bounds(hold).Crash)
	}
}
