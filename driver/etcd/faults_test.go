package etcd_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// dialed makes an etcd client with more dial options, which is closed with the
// test.
func dialed(t *testing.T, addrs []string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, DialOptions: opts, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// unary calls f in place of each unary request; f sends it with next.
func unary(f func(ctx context.Context, method string, req, reply any, next func() error) error) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return f(ctx, method, req, reply, func() error { return call(ctx, method, req, reply, cc, opts...) })
	})
}

// streams calls f with each stream that the client opens.
func streams(f func(method string, s grpc.ClientStream) grpc.ClientStream) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
		method string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, cc, method, opts...)
		if err == nil {
			s = f(method, s)
		}
		return s, err
	})
}

// If the member on which a waiter opens its watch hangs, the waiter opens it on
// another one.
func TestWatchIsOpenedOnAnotherMember(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	ways := map[string]*testbed.Proxy{}
	var addrs []string
	for range 2 { // two addresses of one store, like two members
		p := srv.Proxy(t)
		ways[p.Addr()] = p
		addrs = append(addrs, p.Addr())
	}
	var cut sync.Once
	opening := make(chan struct{})
	client := dialed(t, addrs, streams(func(method string, s grpc.ClientStream) grpc.ClientStream {
		if strings.HasSuffix(method, "/Watch") {
			cut.Do(func() {
				p, _ := peer.FromContext(s.Context())
				ways[p.Addr.String()].Cut()
				close(opening)
			})
		}
		return s
	}))
	prefix := etcd.WithPrefix(randomPrefix())
	other := newDriver(t, newClient(t, srv.Addr()), prefix)
	d := newDriver(t, client, prefix)
	waitFor(t, 10*time.Second, "connections to both", func() bool {
		_, err := client.Get(t.Context(), "x")
		return err == nil && slices.IndexFunc(addrs, func(a string) bool { return ways[a].Stats().Open == 0 }) < 0
	})
	h := acquire(t, other, request("hung", "id-h", 60*time.Second))
	granted := waitAt(t, d, request("hung", "id-w", 60*time.Second))
	<-opening // the watch, on a member that hangs
	release(t, other, h)
	begun := time.Now()
	select {
	case <-granted:
		t.Logf("granted %v after the release", time.Since(begun).Round(time.Millisecond))
	case <-time.After(12 * time.Second):
		t.Error("the waiter was not granted while one of two members hangs")
	}
	for _, p := range ways {
		p.Heal()
	}
}

// hungKeepAlive makes the keep-alives of one lease hang, as on a member that hangs.
type hungKeepAlive struct {
	grpc.ClientStream
	id *atomic.Int64
}

func (s hungKeepAlive) SendMsg(m any) error {
	if r, ok := m.(*etcdserverpb.LeaseKeepAliveRequest); ok && r.ID == s.id.Load() {
		<-s.Context().Done()
		return s.Context().Err()
	}
	return s.ClientStream.SendMsg(m)
}

// leaseOf returns the lease that a ticket of a name is on.
func leaseOf(t *testing.T, c *clientv3.Client, prefix, name string) int64 {
	t.Helper()
	resp, err := c.Get(t.Context(), prefix+"/"+name+"#", clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err != nil || len(resp.Kvs) == 0 {
		t.Fatalf("no ticket of %q: %v", name, err)
	}
	return resp.Kvs[0].Lease
}

// A keep-alive that hangs does not delay the keep-alives of other leases.
func TestHungLeaseStarvesNobody(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	direct := newClient(t, srv.Addr())
	var hung atomic.Int64
	client := dialed(t, []string{srv.Addr()}, streams(func(_ string, s grpc.ClientStream) grpc.ClientStream {
		return hungKeepAlive{s, &hung}
	}))
	prefix := randomPrefix()
	other := newDriver(t, direct, etcd.WithPrefix(prefix))
	d := newDriver(t, client, etcd.WithPrefix(prefix))

	t.Run("waiters", func(t *testing.T) {
		holds := []driver.Hold{
			acquire(t, other, request("long", "id-hl", time.Minute)), acquire(t, other, request("short", "id-hs", time.Minute)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wait := func(r driver.Request) <-chan error {
			joined, ended := make(chan struct{}), make(chan error, 1)
			r.Joined = func() { close(joined) }
			go func() {
				_, err := d.Acquire(ctx, r)
				ended <- err
			}()
			<-joined
			return ended
		}
		long := wait(request("long", "id-l", 9*time.Second))
		hung.Store(leaseOf(t, direct, prefix, "long"))
		short := wait(request("short", "id-s", 3*time.Second)) // not lost on a busy machine
		select {
		case err := <-short:
			t.Errorf("the waiter with the short lease: %v", err)
		case <-time.After(8 * time.Second):
		}
		cancel()
		<-long                                        //nolint:errcheck // it was cancelled
		for _, id := range []string{"id-l", "id-s"} { // as the core does
			h := driver.Hold{Name: map[string]string{"id-l": "long", "id-s": "short"}[id], ID: id}
			if err := d.Release(t.Context(), h); err != nil && !errors.Is(err, driver.ErrLost) {
				t.Errorf("release of %s: %v", id, err)
			}
		}
		for _, h := range holds {
			release(t, other, h)
		}
	})
	t.Run("holders", func(t *testing.T) {
		long := acquire(t, d, request("long", "id-l2", 40*time.Second))
		hung.Store(leaseOf(t, direct, prefix, "long"))
		short := acquire(t, d, request("short", "id-s2", 2*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var errs []error
		took := testbed.Elapsed(func() {
			errs = d.RenewAll(ctx, []driver.Renewal{{Hold: long, TTL: 40 * time.Second}, {Hold: short, TTL: 2 * time.Second}})
		})
		if took > 1200*time.Millisecond {
			t.Errorf("a batch with a short lease of 2s took %v", took)
		}
		if errs[1] != nil {
			t.Errorf("renewal of the short lease: %v", errs[1])
		}
		if errs[0] == nil || errors.Is(errs[0], driver.ErrLost) {
			t.Errorf("renewal of the lease that hangs: %v", errs[0])
		}
	})
}
