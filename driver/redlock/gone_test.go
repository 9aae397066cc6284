package redlock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// When two nodes do not queue a ticket, since its release has overtaken the request, it is lost: it must not stay in the queue of
// the third, which the heartbeats of its process would keep it in.
func TestReleasedOnSomeNodes(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	for _, m := range testbed.RedisN(t, 3).Members {
		c := redis.NewClient(&redis.Options{Addr: m.Addr()})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	d, err := New(clients)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if _, err := d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Minute, Wait: true}); err != nil {
		t.Fatal(err)
	}
	for _, n := range d.nodes[:2] {
		released := make(chan error)
		n.send(d.keys.Call(redisqueue.RedlockRelease, []string{d.keys.Main("name")}, "waiter", "", 1), func(_ any, err error) { released <- err })
		if err := <-released; err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Acquire(t.Context(), driver.Request{Name: "name", ID: "waiter", TTL: time.Minute, Wait: true}); !errors.Is(err, driver.ErrLost) {
		t.Fatalf("Acquire: %v, want ErrLost", err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		queue, err := clients[2].ZRange(t.Context(), d.keys.Main("name")+":rx", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(queue, "waiter") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the ticket is still in the queue of the third node: %q", queue)
		}
	}
}
