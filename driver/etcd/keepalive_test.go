package etcd_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// meeting is a stream whose first answer comes when another stream is open, too.
type meeting struct {
	grpc.ClientStream
	both *sync.WaitGroup
	once sync.Once
}

func (m *meeting) RecvMsg(answer any) error {
	m.once.Do(func() {
		m.both.Done()
		m.both.Wait()
	})
	return m.ClientStream.RecvMsg(answer)
}

// When a keep-alive is not answered, all streams that were kept are ended: their server may
// hang, too.
func TestNoStreamIsKeptAfterAnError(t *testing.T) {
	t.Parallel()
	proxy := testbed.SharedEtcd(t).Proxy(t)
	var (
		mu   sync.Mutex
		both sync.WaitGroup
		open []context.Context
	)
	both.Add(2)
	client := dialed(t, []string{proxy.Addr()}, streams(func(method string, s grpc.ClientStream) grpc.ClientStream {
		if !strings.HasSuffix(method, "/LeaseKeepAlive") {
			return s
		}
		mu.Lock()
		defer mu.Unlock()
		open = append(open, s.Context())
		return &meeting{ClientStream: s, both: &both}
	}))
	d := newDriver(t, client, etcd.WithPrefix(randomPrefix()))
	var rs []driver.Renewal
	for name, ttl := range map[string]time.Duration{"a": time.Minute, "b": 2 * time.Minute} {
		rs = append(rs, driver.Renewal{Hold: acquire(t, d, request(name, "id-"+name, ttl)), TTL: ttl})
	}
	for _, err := range d.RenewAll(t.Context(), rs) {
		if err != nil {
			t.Fatal(err)
		}
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	_ = d.Renew(left, rs[0].Hold, rs[0].TTL) // not sent, so no stream is to blame
	mu.Lock()
	for i, s := range open {
		if s.Err() != nil {
			t.Errorf("stream %d was ended by a request that was not sent", i)
		}
	}
	mu.Unlock()
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.Renew(ctx, rs[0].Hold, rs[0].TTL); err == nil {
		t.Error("renewed through a connection that is cut")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(open) != 2 {
		t.Errorf("%d streams were opened, want 2", len(open))
	}
	for i, s := range open {
		select {
		case <-s.Done():
		case <-time.After(10 * time.Second):
			t.Errorf("stream %d was kept", i)
		}
	}
}

// TestEndOfOneCallerIsNoOutage: that the context of one caller ends during a keep-alive says nothing of the store to the
// next one, who waits for a lock that is held.
func TestEndOfOneCallerIsNoOutage(t *testing.T) {
	t.Parallel()
	proxy := testbed.SharedEtcd(t).Proxy(t)
	d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(randomPrefix()))
	acquire(t, d, request("a", "id-1", time.Minute))
	waits := func(id string, renewed bool, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r := request("a", id, time.Minute)
		r.Wait, r.Renewed = true, renewed
		_, err := d.Acquire(ctx, r)
		return err
	}
	_ = waits("id-2", true, 200*time.Millisecond) // from now on the queue is known, for a while
	release(t, d, driver.Hold{Name: "a", ID: "id-2"})
	proxy.HoldReplies(true)
	if err := waits("id-3", false, 50*time.Millisecond); !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("while no answer comes: %v, want that the store has not answered", err)
	}
	proxy.HoldReplies(false)
	if err := waits("id-4", true, 200*time.Millisecond); err != context.DeadlineExceeded { //nolint:errorlint // and nothing else
		t.Errorf("of the one who waited while the store answered: %v, want context.DeadlineExceeded alone", err)
	}
}
