package redlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// breaker breaks a ticket on one node after the other, past the ways to them.
func (x *trio) breaker(token uint64) (breakOn func(node int), others *Driver) {
	x.t.Helper()
	var clients []redis.UniversalClient
	for _, c := range x.direct {
		clients = append(clients, c)
	}
	d, err := New(clients)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = d.Close() })
	return func(node int) {
		x.t.Helper()
		done := make(chan any, 1)
		d.nodes[node].send(d.keys.Call(redisqueue.RedlockBreak, []string{x.key()}, token, "name"), func(v any, _ error) { done <- v })
		if v := <-done; v != int64(1) {
			x.t.Fatalf("node %d: %v", node, v)
		}
	}, d
}

// patient is for tests that hold requests or answers up, on a machine that may be busy.
var patient = WithNodeTimeout(10 * time.Second)

// listening returns a trio that is subscribed to all nodes.
func listening(t *testing.T, opts ...Option) *trio {
	t.Helper()
	x := newTrio(t, opts...)
	x.until("subscribed to all nodes", func() bool {
		return x.d.nodes[0].listener.Up() && x.d.nodes[1].listener.Up() && x.d.nodes[2].listener.Up()
	})
	return x
}

// waiting returns a trio with a holder, and a ticket "waiter" that is queued on all nodes.
func waiting(t *testing.T) (*trio, <-chan error) {
	t.Helper()
	x := listening(t)
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Minute, Wait: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return x, x.acquire(ctx, "waiter", time.Minute)
}

// A break that only one node has run is over after some time: the ticket, which is queued there again, does not leave
// the queue when another node loses its data.
func TestPartialBreakPasses(t *testing.T) {
	t.Parallel()
	x, got := waiting(t)
	breakOn, _ := x.breaker(x.numberOf("waiter"))
	breakOn(0)
	x.until("queued again", func() bool { return x.waits(0, "waiter") })
	time.Sleep(5*time.Second + 100*time.Millisecond)
	x.direct[1].Del(t.Context(), x.key()+":rx", x.key()+":rt")
	x.until("queued again", func() bool { return x.waits(1, "waiter") || len(got) > 0 })
	if err := x.d.Release(t.Context(), driver.Hold{Name: "name", ID: "holder"}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A break that reaches the nodes one after the other counts, though its ticket was queued again meanwhile where it came first.
func TestBreakNodeByNode(t *testing.T) {
	t.Parallel()
	x, got := waiting(t)
	breakOn, _ := x.breaker(x.numberOf("waiter"))
	breakOn(0)
	x.until("queued again", func() bool { return x.waits(0, "waiter") })
	breakOn(1)
	if err := <-got; !errors.Is(err, driver.ErrLost) {
		t.Fatalf("%v, want ErrLost", err)
	}
	x.until("gone from all nodes", func() bool { return !x.waits(0, "waiter") && !x.waits(1, "waiter") && !x.waits(2, "waiter") })
}

// A break counts if some nodes run it while the ticket waits, and others when it is granted.
func TestBreakDuringGrant(t *testing.T) {
	t.Parallel()
	x, got := waiting(t)
	lost := make(chan driver.Hold, 1)
	x.d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	breakOn, others := x.breaker(x.numberOf("waiter"))
	breakOn(0)
	x.until("queued again", func() bool { return x.waits(0, "waiter") })
	if err := others.Release(t.Context(), driver.Hold{Name: "name", ID: "holder"}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	x.until("held on all nodes", func() bool { return x.holds(0) && x.holds(1) && x.holds(2) })
	breakOn(1)
	select {
	case h := <-lost:
		if h.ID != "waiter" || h.Token == 0 {
			t.Errorf("lost: %+v", h)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the holder was not notified")
	}
	x.until("gone from all nodes", func() bool { return !x.holds(0) && !x.holds(1) && !x.holds(2) })
}

// A ticket that is broken on a majority of the nodes while its attempt to hold is under way is not granted by it.
func TestBreakOvertakenByAttempt(t *testing.T) {
	t.Parallel()
	x, got := waiting(t)
	lost := make(chan driver.Hold, 1)
	x.d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	breakOn, others := x.breaker(x.numberOf("waiter"))
	for node, way := range x.ways {
		way.Delay(300 * time.Millisecond)
		x.d.notified(node, "gwaiter")
	}
	breakOn(0)
	breakOn(1)
	if err := others.Release(t.Context(), driver.Hold{Name: "name", ID: "holder"}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err == nil {
			select {
			case <-lost: // its notices have come after the grant
			case <-time.After(5 * time.Second):
				t.Error("granted, though it was broken")
			}
		} else if !errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("neither lost nor granted")
	}
	x.until("gone from all nodes", func() bool { return !x.holds(0) && !x.holds(1) && !x.holds(2) })
}

// A break that some nodes run before it is known that the ticket is granted counts, as if they had run it later.
func TestBreakBeforeGrantIsKnown(t *testing.T) {
	t.Parallel()
	x := listening(t)
	lost := make(chan driver.Hold, 1)
	x.d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	x.ways[1].Delay(200 * time.Millisecond)
	x.ways[2].Delay(200 * time.Millisecond)
	got := make(chan error, 1)
	go func() {
		_, err := x.d.Acquire(context.Background(), driver.Request{Name: "name", ID: "try", TTL: time.Minute})
		got <- err
	}()
	x.until("held on the first node", func() bool { return x.holds(0) })
	breakOn, _ := x.breaker(form.Holder(x.direct[0].Get(t.Context(), x.key()).Val()).Token)
	breakOn(0)
	x.until("held on the second node", func() bool { return x.holds(1) })
	breakOn(1)
	if err := <-got; err != nil {
		if !errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
		return
	}
	select {
	case <-lost:
	case <-time.After(5 * time.Second):
		t.Error("the holder was not notified")
	}
}

// A break that a majority has run counts, though one of these nodes did not have the ticket, and so notifies nobody, and another
// one that has it is not reached.
func TestBreakBesideANodeThatLacksIt(t *testing.T) {
	t.Parallel()
	x := listening(t)
	lost := make(chan error, 3)
	x.d.NotifyLoss(func(_ driver.Hold, cause error) { lost <- cause })
	x.direct[1].Set(t.Context(), x.key(), "theirs", time.Minute)
	r := driver.Request{Name: "name", ID: "holder", TTL: time.Minute}
	g, err := x.d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	way := x.members[2].Proxy(t)
	way.Refuse()
	third := redis.NewClient(&redis.Options{Addr: way.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = third.Close() })
	others, err := New([]redis.UniversalClient{x.direct[0], x.direct[1], third})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = others.Close() })
	if err := others.Break(t.Context(), "name", g.Token); err != nil {
		t.Fatal(err)
	}
	x.direct[1].Del(t.Context(), x.key())
	select {
	case cause := <-lost:
		if !errors.Is(cause, driver.ErrLost) {
			t.Errorf("the cause of the loss is %v", cause)
		}
	case <-time.After(5 * time.Second):
		t.Error("the holder was not notified")
	}
	if err := x.d.Renew(t.Context(), r.Hold(g.Token), r.TTL); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewed: %v, want ErrLost", err)
	}
	x.until("gone from all nodes", func() bool { return !x.holds(0) && !x.holds(1) && !x.holds(2) })
}

// A break of that kind counts too if the node that had the ticket has notified before the grant was known.
func TestBreakBeforeGrantBesideANodeThatLacksIt(t *testing.T) {
	t.Parallel()
	x := listening(t, patient)
	lost := make(chan error, 3)
	x.d.NotifyLoss(func(_ driver.Hold, cause error) { lost <- cause })
	x.direct[1].Set(t.Context(), x.key(), "theirs", time.Minute)
	x.ways[2].HoldReplies(true)
	got := make(chan error, 1)
	go func() {
		_, err := x.d.Acquire(context.Background(), driver.Request{Name: "name", ID: "try", TTL: time.Minute})
		got <- err
	}()
	x.until("held on two nodes", func() bool { return x.holds(0) && x.holds(2) })
	breakOn, _ := x.breaker(form.Holder(x.direct[0].Get(t.Context(), x.key()).Val()).Token)
	breakOn(0) // and the second node, where it finds nothing
	x.until("notified", func() bool {
		x.d.mu.Lock()
		defer x.d.mu.Unlock()
		tk := x.d.tickets["try"]
		return tk != nil && x.d.brokenOn(tk) != 0
	})
	x.ways[2].HoldReplies(false)
	if err := <-got; err != nil {
		if !errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
		return
	}
	select {
	case cause := <-lost:
		if !errors.Is(cause, driver.ErrLost) {
			t.Errorf("the cause of the loss is %v", cause)
		}
	case <-time.After(5 * time.Second):
		t.Error("the holder was not notified")
	}
}

// others opens a driver of another process, with ways of its own to the nodes.
func (x *trio) others(t *testing.T) (d *Driver, ways []*testbed.Proxy) {
	t.Helper()
	var clients []redis.UniversalClient
	for _, m := range x.members {
		way := m.Proxy(t)
		c := redis.NewClient(&redis.Options{Addr: way.Addr(), DialerRetries: 1})
		t.Cleanup(func() { _ = c.Close() })
		ways, clients = append(ways, way), append(clients, c)
	}
	d, err := New(clients, patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.agree(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return d, ways
}

// A break counts though a node that has run it without the ticket gets the ticket, by a repair, before another one runs it.
func TestBreakBeforeRepair(t *testing.T) {
	t.Parallel()
	x := listening(t)
	lost := make(chan error, 3)
	x.d.NotifyLoss(func(_ driver.Hold, cause error) { lost <- cause })
	x.direct[1].Set(t.Context(), x.key(), "theirs", time.Minute)
	r := driver.Request{Name: "name", ID: "holder", TTL: time.Minute}
	g, err := x.d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	others, ways := x.others(t)
	ways[0].Cut()
	ways[2].Refuse()
	broken := make(chan error, 1)
	go func() { broken <- others.Break(t.Context(), "name", g.Token) }()
	x.until("run on the second node", func() bool {
		return strings.Contains(x.direct[1].Info(t.Context(), "commandstats").Val(), "cmdstat_zrem:")
	})
	x.direct[1].Del(t.Context(), x.key())
	x.until("repaired", func() bool { return x.holds(1) })
	ways[0].Heal()
	if err := <-broken; err != nil {
		t.Fatal(err)
	}
	select {
	case cause := <-lost:
		if !errors.Is(cause, driver.ErrLost) {
			t.Errorf("the cause of the loss is %v", cause)
		}
	case <-time.After(5 * time.Second):
		t.Error("the holder was not notified")
	}
	if err := x.d.Renew(t.Context(), r.Hold(g.Token), r.TTL); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewed: %v, want ErrLost", err)
	}
}

// numberOf returns the number of a ticket that waits on all nodes.
func (x *trio) numberOf(id string) uint64 {
	return uint64(x.direct[0].ZScore(context.Background(), x.key()+":rx", id).Val())
}

// A break that a majority has not run within five seconds has failed, though its program waits longer for a node's answer than that of
// the holder: the holder has got the lease back on the first node since.
func TestBreakTooSlow(t *testing.T) {
	t.Parallel()
	x := listening(t)
	lost := make(chan driver.Hold, 3)
	x.d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	h := x.acquireForAMinute("holder")
	x.until("held on all nodes", func() bool { return x.holds(0) && x.holds(1) && x.holds(2) })
	others, ways := x.others(t)
	ways[1].Cut()
	ways[2].Refuse()
	ways[2].Reset()
	broken := make(chan error, 1)
	go func() { broken <- others.Break(t.Context(), "name", h.Token) }()
	x.until("run on the first node", func() bool {
		tk := x.d.holds(h.ID)
		x.d.mu.Lock()
		defer x.d.mu.Unlock()
		return x.d.brokenOn(tk) != 0
	})
	x.until("repaired", func() bool { return x.holds(0) })
	time.Sleep(spread + 500*time.Millisecond) // it is not done sooner
	ways[1].Heal()
	if err := <-broken; err != nil {
		return
	}
	select {
	case <-lost:
	case <-time.After(5 * time.Second):
		t.Error("broken, and the holder was not notified")
	}
	if err := x.d.Renew(t.Context(), h, time.Minute); !errors.Is(err, driver.ErrLost) {
		t.Errorf("broken, and renewed: %v", err)
	}
}
