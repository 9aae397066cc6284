package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// received counts the messages that a client receives.
type received struct{ atomic.Int64 }

func (*received) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*received) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*received) HandleConn(context.Context, stats.ConnStats)                       {}
func (r *received) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InPayload); ok {
		r.Add(1)
	}
}

// awaitLoss waits until a driver is notified of the loss of a lock.
func awaitLoss(t *testing.T, lost <-chan driver.Hold, h driver.Hold) {
	t.Helper()
	select {
	case got := <-lost:
		if got != h {
			t.Errorf("notified of %+v, want %+v", got, h)
		}
	case <-time.After(15 * time.Second):
		t.Fatalf("not notified of the loss of %s", h.Name)
	}
}

// awaitNotices waits until n leases are watched for losses.
func awaitNotices(t *testing.T, client *clientv3.Client, prefix string, n int) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		resp, err := client.Get(t.Context(), prefix+"/#notice/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		if resp.Count == int64(n) {
			return
		}
		if time.Since(begun) > 15*time.Second {
			t.Fatalf("%d leases are watched, want %d", resp.Count, n)
		}
	}
}

// The driver of a held lock is notified of each break of its tickets, one after the other,
// and gets no message when others release theirs.
func TestNotices(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := withPrefix(randomPrefix())
	var messages received
	client := dialed(t, []string{srv.Addr()}, grpc.WithStatsHandler(&messages))
	d, other := newDriver(t, client, prefix), newDriver(t, newClient(t, srv.Addr()), prefix)
	lost := make(chan driver.Hold, 3)
	d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	var hs []driver.Hold
	for i := range 3 {
		hs = append(hs, acquire(t, d, request(fmt.Sprint("held-", i), fmt.Sprint("id-", i), time.Minute)))
	}
	for n := int64(-1); n != messages.Load(); time.Sleep(time.Second) { // the watch is being opened
		n = messages.Load()
	}
	before := messages.Load()
	for i := range 20 {
		release(t, other, acquire(t, other, request("busy", fmt.Sprint("busy-", i), time.Minute)))
	}
	if n := messages.Load() - before; n > 0 {
		t.Errorf("%d messages for 20 releases of others", n)
	}
	for _, h := range hs {
		if err := other.Break(t.Context(), h.Name, h.Token); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, lost, h)
	}
}

// A ticket may be moved to another lease while somebody breaks it: its driver is notified by
// the key of the new one.
func TestBreakOfMovedTicket(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := randomPrefix()
	d := newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix))
	lost := make(chan driver.Hold, 3)
	d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	h := acquire(t, d, request("moved", "id-1", time.Minute))
	other := request("other", "id-2", 30*time.Second) // on the second lease
	other.MinHold = 30 * time.Second
	acquire(t, d, other)
	admin := newClient(t, srv.Addr())
	awaitNotices(t, admin, prefix, 2)
	var once sync.Once
	client := dialed(t, []string{srv.Addr()}, unary(func(_ context.Context, _ string, req, _ any, next func() error) error {
		err := next()
		if r, ok := req.(*etcdserverpb.RangeRequest); ok && r.MinCreateRevision > 0 {
			once.Do(func() {
				if err := d.Shorten(t.Context(), h, 30*time.Second); err != nil {
					t.Errorf("shorten: %v", err)
				}
			})
		}
		return err
	}))
	if err := newDriver(t, client, withPrefix(prefix)).Break(t.Context(), h.Name, h.Token); err != nil {
		t.Fatal(err)
	}
	awaitLoss(t, lost, h)
}

// A request for the key of a lease that is not answered is sent again.
func TestNoticeHangs(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := randomPrefix()
	var hangs atomic.Int64
	client := dialed(t, []string{srv.Addr()}, unary(func(ctx context.Context, _ string, req, _ any, next func() error) error {
		r, ok := req.(*etcdserverpb.TxnRequest)
		if ok && len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestPut().GetKey()), "/#notice/") && hangs.Add(1) == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return next()
	}))
	d := newDriver(t, client, withPrefix(prefix))
	d.NotifyLoss(func(h driver.Hold, err error) { t.Errorf("%q is lost: %v", h.Name, err) })
	h := acquire(t, d, request("held", "id", time.Minute))
	awaitNotices(t, newClient(t, srv.Addr()), prefix, 1)
	release(t, d, h)
}
