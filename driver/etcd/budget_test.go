package etcd_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// requests counts the unary requests of clients, and the streams they open.
type requests struct{ unary, streams atomic.Int64 }

func (c *requests) client(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr},
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				c.unary.Add(1)
				return call(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				c.streams.Add(1)
				return open(ctx, desc, cc, method, opts...)
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *requests) locker(t *testing.T, addr string, opts ...etcd.Option) *locker.Client {
	t.Helper()
	d, err := etcd.New(c.client(t, addr), opts...)
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// An uncontended cycle takes two requests, a contended one three at most.
func TestRequestsPerCycle(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	ctx := t.Context()
	var c requests
	prefix := randomPrefix()
	l := c.locker(t, srv.Addr(), withPrefix(prefix))
	warm, err := l.Acquire(ctx, "warm")
	if err != nil {
		t.Fatal(err)
	}
	awaitNotices(t, newClient(t, srv.Addr()), prefix, 1) // of its lease: once
	if err := warm.Release(ctx); err != nil {
		t.Fatal(err)
	}
	c.unary.Store(0)
	c.streams.Store(0)
	const cycles = 200
	for range cycles {
		cycle(t, ctx, l, t.Name())
	}
	if unary := c.unary.Load(); unary != 2*cycles {
		t.Errorf("%d uncontended cycles took %d requests, want %d", cycles, unary, 2*cycles)
	}
	if streams := c.streams.Load(); streams > 2 { // a keep-alive, on a slow machine
		t.Errorf("%d uncontended cycles opened %d streams", cycles, streams)
	}

	const contenders = 16
	var ls []*locker.Client
	for range contenders {
		ls = append(ls, c.locker(t, srv.Addr()))
	}
	c.unary.Store(0)
	const grants = 40 // each
	var wg sync.WaitGroup
	for _, l := range ls {
		wg.Go(func() {
			for range grants {
				k, err := l.Acquire(ctx, t.Name())
				if err != nil {
					t.Error(err)
					return
				}
				if err := k.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	per := float64(c.unary.Load()) / (contenders * grants)
	t.Logf("%d contenders: %.2f requests a grant", contenders, per)
	if per > 3 {
		t.Errorf("%.2f requests a grant under contention, want at most 3", per)
	}
}

func cycle(t *testing.T, ctx context.Context, l *locker.Client, name string) {
	t.Helper()
	k, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
}
