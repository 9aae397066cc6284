package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
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

func (c *requests) locker(t *testing.T, addr string) *locker.Client {
	t.Helper()
	d, err := etcd.New(c.client(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// contend runs n contenders for a while and returns how many grants there
// were a second.
func contend(t *testing.T, n int, cycle func(i int) error) float64 {
	t.Helper()
	const lasts = 700 * time.Millisecond
	var (
		wg     sync.WaitGroup
		grants atomic.Int64
	)
	begun := time.Now()
	for i := range n {
		wg.Go(func() {
			for time.Since(begun) < lasts {
				if err := cycle(i); err != nil {
					t.Error(err)
					return
				}
				grants.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(grants.Load()) / time.Since(begun).Seconds()
}

// An uncontended cycle is two requests, one under contention three at most.
func TestRequestsPerCycle(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	ctx := t.Context()
	var c requests
	l := c.locker(t, srv.Addr())
	cycle(t, ctx, l, "warm")
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
	var grants atomic.Int64
	rate := contend(t, contenders, func(i int) error {
		grants.Add(1)
		k, err := ls[i].Acquire(ctx, t.Name())
		if err != nil {
			return err
		}
		return k.Release(ctx)
	})
	per := float64(c.unary.Load()) / float64(grants.Load())
	t.Logf("%d contenders: %.0f grants/s, %.2f requests a grant", contenders, rate, per)
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
