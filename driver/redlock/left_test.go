package redlock

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// acquire waits for a ticket in the background. It returns when the ticket is queued on all nodes.
func (x *trio) acquire(ctx context.Context, id string, ttl time.Duration) <-chan error {
	x.t.Helper()
	done, queued := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := x.d.Acquire(ctx, driver.Request{Name: "name", ID: id, TTL: ttl, Wait: true, Joined: func() { close(queued) }})
		done <- err
	}()
	<-queued
	x.queued(id)
	return done
}

// A ticket with a short lease that is granted while one node is not reached is removed from the queue of that node, too, when it is
// released: the heartbeats for others that its process waits for would keep it there.
func TestReleasedWhereItWaits(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Minute, Wait: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, next := x.acquire(ctx, "waiter", 500*time.Millisecond), x.acquire(ctx, "next", time.Minute)
	x.acquire(ctx, "last", time.Minute)
	x.ways[2].Refuse()
	if err := x.d.Release(ctx, driver.Hold{Name: "name", ID: "holder"}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if err := x.d.Release(ctx, driver.Hold{Name: "name", ID: "waiter"}); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	x.fails(2, x.inspect())() // and so has the release before
	x.ways[2].Heal()
	x.until("gone from the third node", func() bool { return !x.waits(2, "waiter") })
}

// A node that has said that it does not have a ticket counts as one that has it when it says so: the ticket is not lost with
// the data of another node.
func TestHasItAgain(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Minute, Wait: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := x.acquire(ctx, "waiter", time.Minute)
	lost := x.ways[0].LoseReply("xjk") // to the request by which it is queued again
	x.direct[0].Del(ctx, x.key()+":rx", x.key()+":rt")
	<-lost
	x.until("the first node has it", func() bool {
		x.d.mu.Lock()
		defer x.d.mu.Unlock()
		w := x.d.waiter("waiter")
		return w == nil || w.absent == 0
	})
	x.direct[1].Del(ctx, x.key()+":rx", x.key()+":rt")
	x.until("the second node has it", func() bool { return x.waits(1, "waiter") || len(got) > 0 })
	if err := x.d.Release(ctx, driver.Hold{Name: "name", ID: "holder"}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A node that does not get a request which a majority grants gets the lease soon, though its subscription has not noticed anything.
func TestRequestLostOnOneNode(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	x.until("subscribed", func() bool { return x.d.nodes[2].listener.Up() })
	x.direct[2].Publish(t.Context(), x.d.channel, "") // it is not tested for the next two seconds
	x.ways[2].Lose()
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "try", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	x.fails(2, x.inspect())() // and so has the request before
	x.ways[2].Heal()
	x.until("held on the third node", func() bool { return x.holds(2) })
}

// A node that queues a ticket, which the others grant, behind a lease that ends there by itself gets the lease then. Nothing
// notifies of that end, and a lease without renewal has no other request.
func TestGrantedBehindALease(t *testing.T) {
	t.Parallel()
	x := listening(t)
	x.direct[2].Set(t.Context(), x.key(), "theirs", 300*time.Millisecond)
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "waiter", TTL: time.Minute, Wait: true}); err != nil {
		t.Fatal(err)
	}
	x.until("held on the third node", func() bool {
		return form.Holder(x.direct[2].Get(t.Context(), x.key()).Val()).ID == "waiter"
	})
}

// Nodes that are not reached are asked to remove a ticket for as long as they may have it: for the length of its lease or,
// if it may wait there, for as long as they may take its process for alive.
func TestRemovedForAsLongAsItLasts(t *testing.T) {
	for how, end := range map[string]func(d *Driver, tk *ticket){
		"refused": func(d *Driver, tk *ticket) { _ = d.lost(tk) },
		"removed": func(d *Driver, tk *ticket) { d.check(&waiter{t: tk, absent: 1<<1 | 1<<2}) },
		"released": func(d *Driver, tk *ticket) {
			tk.until = time.Now().Add(tk.r.TTL)
			_ = d.Release(context.Background(), tk.r.Hold(0))
		},
		"broken": func(d *Driver, tk *ticket) {
			tk.until = time.Now().Add(tk.r.TTL)
			d.notified(1, "lid 1 x name")
			d.notified(2, "lid 1 x name")
		},
		"extended": func(d *Driver, tk *ticket) {
			longer := tk.r.TTL
			d.longest.Store(0)
			tk.r.TTL, tk.until = time.Second, time.Now().Add(time.Second)
			_ = d.Renew(context.Background(), tk.r.Hold(0), longer)
			_ = d.Release(context.Background(), tk.r.Hold(0))
		},
		"unanswered": func(d *Driver, tk *ticket) { _ = d.Release(context.Background(), tk.r.Hold(0)) },
	} {
		for ttl, last := range map[time.Duration]time.Duration{time.Second: time.Minute, 2 * time.Minute: 2 * time.Minute} {
			t.Run(strings.Join([]string{how, ttl.String()}, " "), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var clients []redis.UniversalClient
					for _, addr := range strings.Fields("a:1 b:1 c:1") {
						c := redis.NewClient(&redis.Options{Addr: addr, Dialer: func(context.Context, string, string) (net.Conn, error) {
							c, server := net.Pipe()
							return c, server.Close()
						}})
						defer c.Close()
						clients = append(clients, c)
					}
					d, err := New(clients)
					if err != nil {
						t.Fatal(err)
					}
					defer d.Close()
					asked := func() bool {
						d.nodes[0].mu.Lock()
						defer d.nodes[0].mu.Unlock()
						return len(d.nodes[0].owed) > 0
					}
					end(d, d.newTicket(driver.Request{Name: "name", ID: "id", TTL: ttl, Wait: true}))
					time.Sleep(last - 2500*time.Millisecond) // between two requests
					if !asked() {
						t.Errorf("not asked for %v", last)
					}
					time.Sleep(5 * time.Second)
					if asked() {
						t.Errorf("asked for more than %v", last)
					}
				})
			})
		}
	}
}
