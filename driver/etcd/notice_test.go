package etcd_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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

// The driver of a held lock is notified of each break of its tickets, one after the other,
// and gets no message when others release theirs.
func TestNotices(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := withPrefix(randomPrefix())
	var messages received
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{srv.Addr()}, DialOptions: []grpc.DialOption{grpc.WithStatsHandler(&messages)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
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
		select {
		case got := <-lost:
			if got != h {
				t.Errorf("notified of %+v, want %+v", got, h)
			}
		case <-time.After(15 * time.Second):
			t.Fatalf("not notified of the break of %s", h.Name)
		}
	}
}
