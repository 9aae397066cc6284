package redlock

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// TestRequeueDuringGrant: the answer to a heartbeat queues a ticket on one more node at the
// moment in which a majority grants it. Both use the ticket's number.
func TestRequeueDuringGrant(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	for _, addr := range []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"} {
		c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	d, err := New(clients)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	w := d.register(d.newTicket(driver.Request{Name: "name", ID: "id", TTL: time.Minute, Wait: true}))
	w.t.number = 1
	d.settle(w)
	p := d.newProposal(w.t, 1, orWait)
	p.asked = time.Now()
	var group sync.WaitGroup
	group.Go(func() { d.requeue(d.nodes[0], w) })
	group.Go(func() { _, _ = d.grant(w.t, p) })
	group.Wait()
	if !w.t.held() {
		t.Error("not granted")
	}
}
