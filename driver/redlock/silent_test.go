package redlock

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A node that is silent does not hold Inspect up.
func TestInspectBesideASilentNode(t *testing.T) {
	t.Parallel()
	x := newTrio(t, WithNodeTimeout(time.Minute))
	x.members[2].Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := x.d.Inspect(ctx, "name"); err != nil {
		t.Error(err)
	}
}

// A node that is merely slow is waited for if it decides whether a ticket is on a majority: a try whose process has died may have left
// one on a single node.
func TestInspectBesideASlowNode(t *testing.T) {
	t.Parallel()
	for what, on := range map[string][]int{"on one node": {0}, "on the slow node, too": {0, 2}, "on the others": {0, 1}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := newTrio(t, WithNodeTimeout(time.Minute))
			tk, number := x.ticket(), x.d.numbers.guess()
			for _, node := range on {
				x.send(node, x.d.acquireCall(tk, time.Minute, number, 1, orLeave, guessed))
			}
			x.members[2].Pause()
			shown := make(chan []driver.Ticket, 1)
			go func() {
				queue, err := x.d.Inspect(t.Context(), "name")
				if err != nil {
					t.Error(err)
				}
				shown <- queue
			}()
			var queue []driver.Ticket
			select {
			case queue = <-shown:
				x.members[2].Resume()
			case <-time.After(5 * others):
				x.members[2].Resume()
				queue = <-shown
			}
			if held := len(queue) == 1 && queue[0].Held; held != (len(on) == 2) || !held && len(queue) > 0 {
				t.Errorf("%+v", queue)
			}
		})
	}
}

// The error of a renewal that the nodes which answered do not decide says that they differ, not that they were too few.
func TestAnswersDiffer(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	h := x.acquireForAMinute("id")
	x.until("held on all nodes", func() bool { return x.holds(0) && x.holds(1) && x.holds(2) })
	x.members[2].Pause()
	x.direct[1].Del(t.Context(), x.key())
	err := x.d.Renew(t.Context(), h, time.Minute)
	if !driver.IsUnavailable(err) || !strings.Contains(err.Error(), "2 of 3 nodes answered, and differ") {
		t.Error(err)
	}
}

// Nor does one to which no connection can be made hold up what all nodes are asked for at once, whatever the client's dial timeout is,
// and nothing waits for it after Close.
func TestListBesideAnUnreachableNode(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	for i, m := range testbed.RedisN(t, 3).Members {
		o := &redis.Options{Addr: m.Addr(), DialTimeout: time.Minute}
		if i == 2 {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				<-t.Context().Done() // the end of the test
				return nil, context.Cause(t.Context())
			}
		}
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	d, err := New(clients, WithNodeTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := d.Acquire(ctx, driver.Request{Name: "name", ID: "id", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List(ctx); err != nil || !slices.Equal(names, []string{"name"}) {
		t.Errorf("listed: %q, %v", names, err)
	}
	if _, err := d.ServerVersion(ctx); err != nil {
		t.Error(err)
	}
	_ = d.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.life.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("a request to that node is left after Close")
	}
}
