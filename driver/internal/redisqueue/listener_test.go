package redisqueue_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestRenewed: a subscription that this process has ended itself is made anew. Its owner hears of each that is up, for
// messages may have been missed.
func TestRenewed(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testbed.SharedRedis(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	back := make(chan struct{}, 2)
	l := redisqueue.NewListener(client, "renewed", func(string) {}, func() { back <- struct{}{} })
	t.Cleanup(l.Close)
	if err := l.Await(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	<-back
	l.Renew(time.Now())
	<-back
}

// TestRenewWaitsForNoConnection: while the server that has ended a subscription accepts no connection, who asks for another one is
// not held up: it is the task that sends the heartbeats. The dialer of go-redis for TLS does not end with its context.
func TestRenewWaitsForNoConnection(t *testing.T) {
	t.Parallel()
	for name, respects := range map[string]bool{"the dialer respects its context": true, "and does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testbed.Redis(t)
			other := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			t.Cleanup(func() { _ = other.Close() })
			var hangs atomic.Bool
			hanging, ended := make(chan struct{}, 100), make(chan struct{})
			client := redis.NewClient(&redis.Options{Addr: srv.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !hangs.Load() {
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
				hanging <- struct{}{}
				if !respects {
					ctx = context.WithoutCancel(ctx)
				}
				select {
				case <-ctx.Done():
				case <-ended:
				}
				return nil, net.ErrClosed
			}})
			t.Cleanup(func() { _ = client.Close() })
			l := redisqueue.NewListener(client, "renewed", func(string) {}, func() {})
			t.Cleanup(l.Close)
			if err := l.Await(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { close(ended) })
			hangs.Store(true)
			if err := other.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
			<-hanging
			renewed := make(chan struct{})
			go func() {
				l.Renew(time.Now())
				close(renewed)
			}()
			select {
			case <-renewed:
			case <-time.After(10 * time.Second):
				t.Error("it waits for the dialer")
			}
		})
	}
}
