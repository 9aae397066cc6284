package etcd_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// late is a connection to the store that delays the first transaction of a kind: its
// sender gives it up, and it arrives when the test says so.
type late struct {
	is     func(req *etcdserverpb.TxnRequest) bool
	giveUp context.CancelFunc // ends the sender's call
	req    *etcdserverpb.TxnRequest
}

func (l *late) option() grpc.DialOption {
	return unary(func(ctx context.Context, _ string, req, _ any, next func() error) error {
		txn, ok := req.(*etcdserverpb.TxnRequest)
		if !ok || l.req != nil || !l.is(txn) {
			return next()
		}
		l.req = txn
		l.giveUp()
		<-ctx.Done()
		return ctx.Err()
	})
}

func (l *late) arrive(t *testing.T, addr string) *etcdserverpb.TxnResponse {
	t.Helper()
	resp, err := etcdserverpb.NewKVClient(newClient(t, addr).ActiveConnection()).Txn(t.Context(), l.req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func isDelete(txn *etcdserverpb.TxnRequest) bool {
	return slices.ContainsFunc(txn.Success, func(op *etcdserverpb.RequestOp) bool { return op.GetRequestDeleteRange() != nil })
}

// A release that was given up, and arrives after another request has released the
// ticket, does not delete the next ticket, whether or not the queue has been empty
// meanwhile.
func TestLateReleaseDeletesNobodyElse(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	for name, others := range map[string]int{"queue emptied": 0, "queue goes on": 1} {
		t.Run(name, func(t *testing.T) {
			l := late{is: isDelete}
			d := newDriver(t, dialed(t, []string{srv.Addr()}, l.option()), etcd.WithPrefix(randomPrefix()))
			read := func(id string) driver.Request {
				r := request("late", id, 30*time.Second)
				r.Shared = true
				return r
			}
			h := acquire(t, d, read("id-first"))
			if others > 0 {
				acquire(t, d, read("id-other"))
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l.giveUp = cancel
			if err := d.Release(ctx, h); !errors.Is(err, context.Canceled) {
				t.Fatalf("a release that was not answered: %v", err)
			}
			if err := d.Release(t.Context(), h); err != nil && !errors.Is(err, driver.ErrLost) { // with its lease
				t.Fatal(err)
			}
			acquire(t, d, read("id-next"))
			l.arrive(t, srv.Addr())
			line, err := d.Inspect(t.Context(), "late")
			if err != nil || len(line) != others+1 {
				t.Errorf("%d tickets are queued after a late release, want %d: %+v, %v", len(line), others+1, line, err)
			}
		})
	}
}

// A put that was given up, and arrives after the release of its ticket was answered,
// does not queue the ticket, even if its lease is shared with a lock that stays held.
func TestLatePutQueuesNothing(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	for name, wait := range map[string]bool{"acquire": true, "try": false} {
		t.Run(name, func(t *testing.T) {
			prefix := randomPrefix()
			l := late{is: func(txn *etcdserverpb.TxnRequest) bool {
				return isPut(txn) && strings.Contains(txn.String(), "id-late")
			}}
			d := newDriver(t, dialed(t, []string{srv.Addr()}, l.option()), etcd.WithPrefix(prefix))
			other := acquire(t, d, request("other", "id-other", 30*time.Second))
			r := request("late", "id-late", 30*time.Second)
			r.Wait = wait
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l.giveUp = cancel
			if _, err := d.Acquire(ctx, r); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNoTicket) {
				t.Fatalf("an acquisition that was not answered: %v", err)
			}
			if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
				t.Fatalf("release of what is not there: %v", err)
			}
			if l.arrive(t, srv.Addr()).Succeeded {
				t.Error("the late put was done")
			}
			if n := count(t, newClient(t, srv.Addr()), prefix+"/late#"); n != 0 {
				t.Errorf("%d tickets are queued", n)
			}
			h := acquire(t, d, request("late", "id-late", 30*time.Second)) // the same again
			release(t, d, h)
			release(t, d, other)
		})
	}
}

// Slots are used again after releases that were answered, since the store keeps every
// key that it has ever seen.
func TestSlotsAreUsedAgain(t *testing.T) {
	t.Parallel()
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
