package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// lateKV is a store whose first deletion is on its way for long: who sent it gives
// it up, and it arrives when the test says so.
type lateKV struct {
	clientv3.KV
	late   bool
	arrive func(context.Context) (*clientv3.DeleteResponse, error)
}

func (kv *lateKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	if kv.late {
		return kv.KV.Delete(ctx, key, opts...)
	}
	kv.late = true
	kv.arrive = func(ctx context.Context) (*clientv3.DeleteResponse, error) { return kv.KV.Delete(ctx, key, opts...) }
	<-ctx.Done()
	return nil, ctx.Err()
}

// A release that arrives after it was given up, and after its ticket was
// released by another request, does not delete the next ticket: neither in a line
// that has been empty meanwhile nor in one that has not.
func TestLateReleaseDeletesNobodyElse(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	for name, others := range map[string]int{"line emptied": 0, "line goes on": 1} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, srv.Addr())
			kv := &lateKV{KV: client.KV}
			client.KV = kv
			d := newDriver(t, client, etcd.WithPrefix(randomPrefix()))
			read := func(id string) driver.Request {
				r := request("late", id, 30*time.Second)
				r.Shared = true
				return r
			}
			h := acquire(t, d, read("id-first"))
			if others > 0 {
				acquire(t, d, read("id-other"))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := d.Release(ctx, h); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a release that was not answered: %v", err)
			}
			if err := d.Release(t.Context(), h); err != nil && !errors.Is(err, driver.ErrLost) { // with its lease
				t.Fatal(err)
			}
			acquire(t, d, read("id-next"))
			if _, err := kv.arrive(t.Context()); err != nil {
				t.Fatal(err)
			}
			line, err := d.Inspect(t.Context(), "late")
			if err != nil || len(line) != others+1 {
				t.Errorf("%d tickets in line after a late release, want %d: %+v, %v", len(line), others+1, line, err)
			}
		})
	}
}

// Slots are used again after releases that were answered: the store keeps every
// key that it has ever seen.
func TestSlotsAreUsedAgain(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	client := newClient(t, srv.Addr())
	prefix := randomPrefix()
	d := newDriver(t, client, etcd.WithPrefix(prefix))
	var key string
	for i := range 3 {
		h := acquire(t, d, request("again", "id", 30*time.Second))
		resp, err := client.Get(t.Context(), prefix+"/again", clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%d keys, want 1: %v", len(resp.Kvs), err)
		}
		if i > 0 && string(resp.Kvs[0].Key) != key {
			t.Errorf("the key is %s, and was %s", resp.Kvs[0].Key, key)
		}
		key = string(resp.Kvs[0].Key)
		release(t, d, h)
	}
}
