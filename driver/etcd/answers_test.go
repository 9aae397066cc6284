package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// A release whose answer is lost is repeated. So the lock is not held for as long as
// other locks keep the shared lease alive.
func TestUnansweredReleaseIsMadeGood(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	proxy := srv.Proxy(t)
	prefix := randomPrefix()
	d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(prefix))
	other := acquire(t, d, request("other", "id-other", 30*time.Second))
	h := acquire(t, d, request("stuck", "id-stuck", 30*time.Second))
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.Release(ctx, h); err == nil || errors.Is(err, driver.ErrLost) {
		t.Fatalf("release while cut off: %v", err)
	}
	proxy.Reset() // discards what was sent
	proxy.Heal()
	waitFor(t, 10*time.Second, "renewal of the other lock", func() bool {
		return d.Renew(t.Context(), other, 30*time.Second) == nil
	})
	if err := insist(t.Context(), d, h); err != nil && !errors.Is(err, driver.ErrLost) {
		t.Errorf("release, asked again: %v", err)
	}
	if n := count(t, newClient(t, srv.Addr()), prefix+"/stuck"); n != 0 {
		t.Error("the ticket is queued after its release was answered")
	}
	release(t, d, other)
}

// A ticket whose put was never answered is gone when its release is answered, even if
// a lock that stays held shares its lease.
func TestUnansweredPutIsMadeGood(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	proxy := srv.Proxy(t)
	prefix := randomPrefix()
	direct := newClient(t, srv.Addr())
	d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(prefix))
	other := acquire(t, d, request("other", "id-other", 30*time.Second))
	proxy.DropReplies(true)
	ended := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), request("lost", "id-lost", 30*time.Second))
		ended <- err
	}()
	waitFor(t, 10*time.Second, "put, of which the answer is lost", func() bool {
		return count(t, direct, prefix+"/lost") == 1 && proxy.Stats().Lost > 0
	})
	proxy.Heal() // it also resets the connection whose answer was discarded
	if err := <-ended; err == nil {
		t.Fatal("acquired though the answer was lost")
	}
	waitFor(t, 10*time.Second, "renewal of the other lock", func() bool {
		return d.Renew(t.Context(), other, 30*time.Second) == nil
	})
	if err := insist(t.Context(), d, driver.Hold{Name: "lost", ID: "id-lost"}); err != nil && !errors.Is(err, driver.ErrLost) {
		t.Errorf("release: %v", err)
	}
	if n := count(t, direct, prefix+"/lost"); n != 0 {
		t.Error("the ticket is queued after its release was answered")
	}
	h := acquire(t, d, request("lost", "id-next", 30*time.Second))
	release(t, d, h)
	release(t, d, other)
}

// If the store is not there, Acquire soon returns an error that says so.
func TestDownAtStart(t *testing.T) {
	t.Parallel()
	l := openClient(t, fmt.Sprintf("etcd://127.0.0.1:%d", testbed.Port(t)))
	begun := time.Now()
	_, err := l.Acquire(t.Context(), "down")
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("acquire: %v, want an error that tells of a refused connection", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Compaction removes the revision of a watch: the waiter does not notice.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults())
	client := newClient(t, srv.Addr())
	proxy := srv.Proxy(t)
	a, b := newDriver(t, client), newDriver(t, newClient(t, proxy.Addr()))
	h := acquire(t, a, request("compacted", "id-a", 30*time.Second))
	joined, ended := make(chan struct{}), make(chan error, 1)
	r := request("compacted", "id-b", 30*time.Second)
	r.Joined = func() { close(joined) }
	go func() {
		_, err := b.Acquire(t.Context(), r)
		ended <- err
	}()
	<-joined
	time.Sleep(100 * time.Millisecond) // by then the watch is open, most likely; the test is right without
	proxy.Refuse()
	release(t, a, h)
	var rev int64
	for range 20 {
		resp, err := client.Put(t.Context(), "other", "x")
		if err != nil {
			t.Fatal(err)
		}
		rev = resp.Header.Revision
	}
	if _, err := client.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the waiter got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the waiter was not woken after its watch was compacted away")
	}
}

// A ticket that could not be put because the store was down, and was put by a repeated
// request, is released like any other.
func TestAskedAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	proxy := srv.Proxy(t)
	prefix := randomPrefix()
	d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(prefix))
	r := request("again", "id-again", 30*time.Second)
	proxy.Refuse()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.Acquire(ctx, r); err == nil {
		t.Fatal("acquired without a store")
	}
	proxy.Heal()
	var h driver.Hold
	waitFor(t, 10*time.Second, "a grant", func() bool {
		g, err := d.Acquire(t.Context(), r)
		h = r.Hold(g.Token)
		return err == nil
	})
	release(t, d, h)
	if n := count(t, newClient(t, srv.Addr()), prefix); n != 0 {
		t.Errorf("%d tickets are queued after the release", n)
	}
}

// A server refuses requests while some thousands are not done. A refused request is
// repeated, and no lease suffers.
func TestServerIsBusy(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	var refusals atomic.Int64
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{srv.Addr()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.HasSuffix(method, "/Txn") && refusals.Add(-1) >= 0 {
					return rpctypes.ErrGRPCRequestTooManyRequests
				}
				return next(ctx, method, req, reply, cc, opts...)
			},
		)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l := newLocker(t, newDriver(t, c, etcd.WithPrefix(randomPrefix())))
	other, err := l.Acquire(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	refusals.Store(3)
	k, err := l.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if left := refusals.Load(); left > 0 {
		t.Fatalf("%d refusals were not met", left)
	}
	for _, k := range []*locker.Lock{k, other} {
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	refusals.Store(1 << 40)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "too many requests") {
		t.Errorf("of a server that is busy for long: %v", err)
	}
	refusals.Store(0)
}
