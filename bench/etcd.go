package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker"
	lockeretcd "github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

var etcdStore = store{name: "etcd", title: "etcd, one member, fsync on", subjects: func(tb *bed) []subject {
	addr := testbed.Etcd(tb, testbed.Durable()).Addr()
	return []subject{
		{name: "raw put + delete in a txn", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return newEtcdRaw(tb, etcdConn(tb, addr, n))
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
			c := etcdConn(tb, addr, n)
			d, err := lockeretcd.New(c)
			tb.check(err)
			return closing{ours{locker.New(d)}, c.Close}
		}},
		{name: "concurrency.Mutex, shared session", uncontended: true, contended: true, open: func(tb *bed, n *atomic.Int64) client {
			c := etcdConn(tb, addr, n)
			s, err := concurrency.NewSession(c, concurrency.WithTTL(int(leaseTTL/time.Second)))
			tb.check(err)
			return &etcdMutex{c, s}
		}},
	}
}}

func etcdConn(tb *bed, addr string, n *atomic.Int64) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				n.Add(1)
				return next(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := next(ctx, desc, cc, method, opts...)
				return &countedStream{s, n}, err
			}),
		},
	})
	tb.check(err)
	return c
}

// countedStream counts what is sent over a stream: watches, keep-alives.
type countedStream struct {
	grpc.ClientStream
	n *atomic.Int64
}

func (s *countedStream) SendMsg(m any) error {
	s.n.Add(1)
	return s.ClientStream.SendMsg(m)
}

type etcdRaw struct {
	c     *clientv3.Client
	lease clientv3.LeaseID
}

func newEtcdRaw(tb *bed, c *clientv3.Client) *etcdRaw {
	g, err := c.Grant(context.Background(), 3600)
	tb.check(err)
	return &etcdRaw{c, g.ID}
}

func (r *etcdRaw) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	put, err := r.c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
		Then(clientv3.OpPut(name, "me", clientv3.WithLease(r.lease))).Commit()
	if err == nil && !put.Succeeded {
		err = fmt.Errorf("%s is taken", name)
	}
	if err != nil {
		return nil, err
	}
	rev := put.Header.Revision
	return func(ctx context.Context) error {
		_, err := r.c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", rev)).
			Then(clientv3.OpDelete(name)).Commit()
		return err
	}, nil
}

func (r *etcdRaw) close() {
	_, _ = r.c.Revoke(context.Background(), r.lease) // the server goes away anyway
	_ = r.c.Close()
}

type etcdMutex struct {
	c *clientv3.Client
	s *concurrency.Session
}

func (m *etcdMutex) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	x := concurrency.NewMutex(m.s, name)
	if err := x.Lock(ctx); err != nil {
		return nil, err
	}
	return x.Unlock, nil
}

func (m *etcdMutex) close() {
	_ = m.s.Close()
	_ = m.c.Close()
}
