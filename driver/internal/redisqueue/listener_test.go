package redisqueue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestRenewedIsNoOutage: a subscription that this process has ended itself, to make it anew,
// is no sign of an outage. Its owner hears of each that is up, for messages may have been missed.
func TestRenewedIsNoOutage(t *testing.T) {
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
	for {
		if err := l.Err(); err != nil {
			t.Fatalf("while it is made anew: %v", err)
		}
		select {
		case <-back:
			return
		default:
			time.Sleep(time.Millisecond)
		}
	}
}
