package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// waitFails begins to wait, and returns the error of the wait when the ticket is queued.
func waitFails(t *testing.T, d driver.Driver, r driver.Request) <-chan error {
	t.Helper()
	joined, ended := make(chan struct{}), make(chan error, 1)
	r.Joined = func() { close(joined) }
	go func() {
		_, err := d.Acquire(t.Context(), r)
		ended <- err
	}()
	<-joined
	return ended
}

// Somebody deletes all keys of a queue: none of its waiters is granted, near its head or
// far from it.
func TestQueueDeletedByHand(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := randomPrefix()
	admin := newClient(t, srv.Addr())
	holder := newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix))
	for i := range 20 {
		r := request("wiped", fmt.Sprint("id-", i), 30*time.Second)
		r.Shared = true
		acquire(t, holder, r)
	}
	var ended []<-chan error
	for i := range 3 {
		d := newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix))
		ended = append(ended, waitFails(t, d, request("wiped", fmt.Sprint("id-w", i), 30*time.Second)))
	}
	if _, err := admin.Delete(t.Context(), prefix+"/wiped#", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	for _, e := range ended {
		if err := <-e; !errors.Is(err, driver.ErrLost) {
			t.Errorf("a waiter got %v, want ErrLost", err)
		}
	}
}

// A holder's key is deleted by hand, or overwritten, which takes it off its lease. In the
// first case the next is granted, and the holder's process gets a larger token. In the
// second the holder still has its lock, and its release removes the key.
func TestKeyChangedByHand(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	admin := newClient(t, srv.Addr())
	for what, deleted := range map[string]bool{"deleted": true, "overwritten": false} {
		t.Run(what, func(t *testing.T) {
			prefix := randomPrefix()
			a := newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix))
			b := newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix))
			h := acquire(t, a, request("x", "id-a", 30*time.Second))
			next := request("x", "id-b", 30*time.Second)
			granted := waitAt(t, b, next)
			resp, err := admin.Get(t.Context(), prefix+"/x#", append(clientv3.WithFirstCreate(), clientv3.WithPrefix())...)
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("the queue is %v, %v", resp.Kvs, err)
			}
			if deleted {
				_, err = admin.Delete(t.Context(), string(resp.Kvs[0].Key))
			} else {
				_, err = admin.Put(t.Context(), string(resp.Kvs[0].Key), "by hand")
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Renew(t.Context(), h, 30*time.Second); deleted != errors.Is(err, driver.ErrLost) || !deleted && err != nil {
				t.Errorf("renewal: %v", err)
			}
			if !deleted {
				release(t, a, h)
			}
			g := <-granted
			last := waitAt(t, a, request("x", "id-c", 30*time.Second))
			release(t, b, next.Hold(g.Token))
			if l := <-last; l.Token <= g.Token || g.Token <= h.Token {
				t.Errorf("tokens %d, %d, %d", h.Token, g.Token, l.Token)
			}
		})
	}
}

// heldUp delivers nothing of a stream until it is freed.
type heldUp struct {
	grpc.ClientStream
	held atomic.Bool
	free chan struct{}
}

func (s *heldUp) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.held.Load() {
		<-s.free
	}
	return err
}

// A waiter is broken just before its own process releases the lock, and the member that
// serves the watch is slow to say so. The waiter is not granted beside the one behind it, nor
// if another holder leaves before that.
func TestWaiterBrokenBeforeHandOff(t *testing.T) {
	t.Parallel()
	for what, shared := range map[string]bool{"a writer": false, "two readers": true} {
		t.Run(what, func(t *testing.T) { brokenBeforeHandOff(t, shared) })
	}
}

func brokenBeforeHandOff(t *testing.T, shared bool) {
	srv := testbed.SharedEtcd(t)
	prefix := withPrefix(randomPrefix())
	var mu sync.Mutex
	var watches []*heldUp
	client := dialed(t, []string{srv.Addr()}, streams(func(method string, s grpc.ClientStream) grpc.ClientStream {
		if !strings.HasSuffix(method, "/Watch") {
			return s
		}
		mu.Lock()
		defer mu.Unlock()
		watches = append(watches, &heldUp{ClientStream: s, free: make(chan struct{})})
		return watches[len(watches)-1]
	}))
	d, other := newDriver(t, client, prefix), newDriver(t, newClient(t, srv.Addr()), prefix)
	r := request("x", "id-h", 30*time.Second)
	r.Shared = shared
	h := acquire(t, d, r)
	var reader driver.Hold
	if shared {
		r.ID = "id-r"
		reader = acquire(t, other, r)
	}
	ended := waitFails(t, d, request("x", "id-w", 30*time.Second))
	next := request("x", "id-n", 30*time.Second)
	granted := waitAt(t, other, next)
	queue, err := other.Inspect(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	for _, w := range watches {
		w.held.Store(true)
	}
	mu.Unlock()
	if shared {
		release(t, other, reader)
	}
	if err := other.Break(t.Context(), "x", queue[len(queue)-2].Token); err != nil {
		t.Fatal(err)
	}
	release(t, d, h)
	g := <-granted
	if err := <-ended; !errors.Is(err, driver.ErrLost) {
		t.Errorf("the waiter that was broken got %v, want ErrLost", err)
	}
	for _, w := range watches {
		close(w.free)
	}
	release(t, other, next.Hold(g.Token))
}
