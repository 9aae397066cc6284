package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// An endpoint is an address that leads to one server and later to another, as that of a
// Kubernetes Service. Connections stay where they are.
type endpoint struct{ to atomic.Value }

func (e *endpoint) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, e.to.Load().(string))
}

// subscribers counts the processes that listen to a server.
func subscribers(t *testing.T, c *goredis.Client) int {
	t.Helper()
	channels, err := c.PubSubChannels(t.Context(), "*:proc:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(channels)
}

// failedOver returns a Locker whose subscription has stayed on a server that is a replica
// now, and the new primary. Its requests reach the primary through the proxy.
func failedOver(t *testing.T) (*locker.Client, *testbed.Server, *testbed.Proxy) {
	t.Helper()
	old, primary := testbed.Redis(t), testbed.Redis(t)
	proxy := primary.Proxy(t)
	var e endpoint
	e.to.Store(old.Addr())
	c := goredis.NewClient(&goredis.Options{Addr: "endpoint:6379", Dialer: e.dial})
	t.Cleanup(func() { _ = c.Close() })
	d, err := redis.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	if err := l.Ping(t.Context()); err != nil { // and the subscription is up
		t.Fatal(err)
	}
	e.to.Store(proxy.Addr())
	follow(t, old, primary)
	return l, primary, proxy
}

// follow makes a server a replica.
func follow(t *testing.T, replica, primary *testbed.Server) {
	t.Helper()
	if err := dial(t, primary.Addr()).ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err(); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(primary.Addr())
	if err := dial(t, replica.Addr()).SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		if info := dial(t, primary.Addr()).Info(t.Context(), "replication").Val(); !strings.Contains(info, "state=online") {
			return errors.New("no replica")
		}
		return nil
	})
}

// TestSubscriptionOnReplica: the notification of a grant comes by way of a replica, so that
// the primary counts no subscriber. The grant is worth what the notification says, and the
// subscription moves to the primary.
func TestSubscriptionOnReplica(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]locker.Option{nil, {locker.Limit(1)}} {
		for _, confirmed := range []bool{true, false} {
			t.Run(fmt.Sprintf("shared=%t confirmed=%t", opts != nil, confirmed), func(t *testing.T) {
				t.Parallel()
				grantThroughReplica(t, confirmed, append(opts, locker.WithTTL(10*time.Second))...)
			})
		}
	}
}

func grantThroughReplica(t *testing.T, confirmed bool, opts ...locker.Option) {
	t.Helper()
	l, primary, proxy := failedOver(t)
	other, next := process(t, primary.URL()), process(t, primary.URL())
	name := newName()
	k := take(t, other, name)
	got := acquiring(t, l, name, opts...)
	await(t, other, name, 2)
	last := acquiring(t, next, name)
	await(t, other, name, 3)
	release(t, k)
	k, _ = within(t, got, time.Second+load)
	if confirmed {
		select {
		case <-last:
			t.Fatalf("granted to another while one holds: %v", k.Err())
		case <-k.Done():
			t.Fatal(k.Err())
		case <-time.After(1500 * time.Millisecond):
		}
		release(t, k)
	} else {
		proxy.Cut() // so its confirmation is lost
	}
	end, _ := within(t, last, 3200*time.Millisecond+load)
	if k.Err() == nil {
		t.Error("granted to another while one holds")
	}
	release(t, end)
	proxy.Heal()
}

// TestSubscriptionMoves: a process that waits notices that its subscription is not on the
// server that keeps the queue, and subscribes there.
func TestSubscriptionMoves(t *testing.T) {
	t.Parallel()
	l, primary, _ := failedOver(t)
	other := process(t, primary.URL())
	name := newName()
	k := take(t, other, name)
	c := dial(t, primary.Addr())
	before := subscribers(t, c)
	got := acquiring(t, l, name)
	until(t, func() error {
		if n := subscribers(t, c); n != before+1 {
			return fmt.Errorf("%d processes listen to the primary, want %d", n, before+1)
		}
		return nil
	})
	release(t, k)
	k, _ = within(t, got, 100*time.Millisecond+load)
	release(t, k)
}
