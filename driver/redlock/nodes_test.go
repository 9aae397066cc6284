package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMinorityDown(t *testing.T) {
	t.Parallel()
	for _, down := range []int{1, 2} {
		nodes := testbed.RedisN(t, 5)
		a, b := client(t, nodes.URL()), client(t, nodes.URL())
		k := take(t, a, "a")
		for i := range down {
			nodes.Members[i].Kill()
		}
		first := queue(t, b, "a", 2)
		second := queue(t, a, "a", 3)
		if _, err := b.TryAcquire(t.Context(), "a"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Fatalf("TryAcquire of what is held, %d nodes down: %v", down, err)
		}
		release(t, k)
		next := granted(t, first)
		if next.Token() <= k.Token() {
			t.Fatalf("token %d after %d", next.Token(), k.Token())
		}
		release(t, next)
		release(t, granted(t, second))
		for range 20 {
			release(t, take(t, b, "b"))
		}
		r1, r2 := take(t, a, "s", locker.Limit(2)), take(t, b, "s", locker.Limit(2))
		if _, err := b.TryAcquire(t.Context(), "s", locker.Limit(2)); !errors.Is(err, locker.ErrNotAcquired) {
			t.Fatalf("a third of two permits, %d nodes down: %v", down, err)
		}
		release(t, r1)
		release(t, r2)
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMajorityDown(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	c := client(t, nodes.URL())
	release(t, take(t, c, "a"))
	for _, m := range nodes.Members[:3] {
		m.Kill()
	}
	for _, acquire := range []func(context.Context, string, ...locker.Option) (*locker.Lock, error){c.Acquire, c.TryAcquire} {
		begun := time.Now()
		_, err := acquire(t.Context(), "a")
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("refused after %v only", took)
		}
		if err == nil || !strings.Contains(err.Error(), "2 of 5 nodes answered, 3 are needed") ||
			!strings.Contains(err.Error(), nodes.Members[0].Addr()) {
			t.Errorf("without a majority: %v", err)
		}
		if errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrLost) {
			t.Errorf("too few answers are taken for a verdict: %v", err)
		}
	}
	var group sync.WaitGroup
	for i := range 50 { // they share requests
		group.Go(func() {
			if _, err := c.TryAcquire(t.Context(), strconv.Itoa(i)); err == nil ||
				!strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "unexpected") {
				t.Errorf("one of many without a majority: %v", err)
			}
		})
	}
	group.Wait()
	for _, m := range nodes.Members[:3] {
		m.Start()
	}
	eventually(t, "acquiring after the nodes came back", func() bool {
		k, err := c.TryAcquire(t.Context(), "a")
		if err == nil {
			release(t, k)
		}
		return err == nil
	})
}

func TestPausedMinority(t *testing.T) {
	nodes := testbed.RedisN(t, 5)
	c := client(t, nodes.URL())
	release(t, take(t, c, "a"))
	nodes.Members[0].Pause()
	nodes.Members[4].Pause()
	defer nodes.Members[0].Resume()
	defer nodes.Members[4].Resume()
	for range 50 {
		if took := testbed.Elapsed(func() { release(t, take(t, c, "a")) }); took > 500*time.Millisecond { // a node has a second
			t.Errorf("a cycle took %v: it waited for silent nodes", took)
		}
	}
}

func TestSlowNode(t *testing.T) {
	nodes := testbed.RedisN(t, 5)
	ways := nodes.Proxies(t)
	c := client(t, ways.URL())
	release(t, take(t, c, "a"))
	ways.Proxies[2].Delay(150 * time.Millisecond)
	took := testbed.Elapsed(func() {
		for range 20 {
			release(t, take(t, c, "a"))
		}
	})
	if took > time.Second {
		t.Errorf("20 cycles took %v: they waited for the slow node", took)
	}
	// A node runs requests in their order: whatever was undone before this request is
	// undone there too, though the node is slow.
	cs := clients(t, nodes)
	last := take(t, c, "last")
	eventually(t, "held on the slow node", func() bool { return heldOn(t, cs, "last") == 5 })
	if n := heldOn(t, cs, "a"); n != 0 {
		t.Errorf("a request that came late holds on %d nodes", n)
	}
	release(t, last)
}

// TestReleaseComesLate: a release reaches one node after the request for the next ticket,
// which a majority grants. The ticket holds on that node too, long before its renewal. The
// node notifies of this before the majority is complete, or after.
func TestReleaseComesLate(t *testing.T) {
	t.Parallel()
	acquire := func(c *locker.Client) *locker.Lock { return take(t, c, "a", locker.WithTTL(time.Minute)) }
	try := func(c *locker.Client) *locker.Lock {
		k, err := c.TryAcquire(t.Context(), "a", locker.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for name, next := range map[string]func(*locker.Client) *locker.Lock{"acquire": acquire, "try": try} {
		for _, majority := range []time.Duration{0, 300 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/%v", name, majority), func(t *testing.T) {
				nodes := testbed.RedisN(t, 3)
				cs := clients(t, nodes)
				before, after := nodes.Proxies(t), nodes.Proxies(t)
				a, b := client(t, before.URL()), client(t, after.URL())
				waited := take(t, a, "other")
				got := queue(t, b, "other", 2) // b listens to all nodes from now on
				release(t, waited)
				release(t, granted(t, got))
				k := acquire(a)
				eventually(t, "held on all nodes", func() bool { return heldOn(t, cs, "a") == 3 })
				before.Proxies[2].Delay(100 * time.Millisecond)
				after.Proxies[1].Delay(majority)
				release(t, k)
				k = next(b)
				eventually(t, "the next ticket on all nodes", func() bool {
					for _, c := range cs {
						if v := c.Get(t.Context(), keyOf("a")).Val(); !strings.Contains(v, fmt.Sprintf(" %d ", k.Token())) {
							return false
						}
					}
					return true
				})
				release(t, k)
			})
		}
	}
}

func TestSilentNodeIsUndone(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	c := client(t, nodes.URL())
	release(t, take(t, c, "a")) // with a fence no number is refused for coming late
	eventually(t, "released on all nodes", func() bool { return heldOn(t, cs, "a") == 0 })
	silent := nodes.Members[1]
	silent.Pause()
	release(t, take(t, c, "a", locker.WithTTL(time.Minute)))
	time.Sleep(1200 * time.Millisecond) // the request to it is given up
	silent.Resume()
	eventually(t, "undone on the node that was silent", func() bool { return heldOn(t, cs, "a") == 0 })
	time.Sleep(1500 * time.Millisecond)
	if n := heldOn(t, cs, "a"); n != 0 {
		t.Errorf("a request that came late holds on %d nodes", n)
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	a, b := client(t, nodes.URL()), client(t, nodes.URL())
	const ttl = 3 * time.Second // on a busy machine nodes take a part of a second to start
	k := take(t, a, "a", locker.WithTTL(ttl))
	r := take(t, a, "r", locker.Shared(), locker.WithTTL(ttl))
	eventually(t, "held on all nodes", func() bool { return heldOn(t, cs, "a")+heldOn(t, cs, "r") == 10 })
	// One node after the other loses its data. A majority would be lost without repair.
	for _, m := range nodes.Members[:3] {
		m.Kill()
		m.Start()
		eventually(t, "repaired", func() bool { return heldOn(t, cs, "a")+heldOn(t, cs, "r") == 10 })
		if _, err := b.TryAcquire(t.Context(), "a"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Fatalf("TryAcquire of what is held: %v", err)
		}
	}
	if err := errors.Join(k.Err(), r.Err()); err != nil {
		t.Fatal(err)
	}
	release(t, k)
	release(t, r)
	eventually(t, "released on all nodes", func() bool { return heldOn(t, cs, "a")+heldOn(t, cs, "r") == 0 })
}

// A node that comes back gets what it lacks at once, not with the next renewal,
// which is 20 seconds away here.
func TestRepairWhenBack(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	a, b := client(t, nodes.URL()), client(t, nodes.URL())
	release(t, take(t, a, "warm"))
	nodes.Members[2].Kill() // when it is granted
	k := take(t, a, "a", locker.WithTTL(time.Minute))
	f := take(t, a, "f", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	end := time.Now().Add(time.Minute)
	r := take(t, a, "r", locker.Shared(), locker.WithTTL(time.Minute))
	everywhere := func() bool { return heldOn(t, cs, "a")+heldOn(t, cs, "f")+heldOn(t, cs, "r") == 9 }
	stop, busy := make(chan struct{}), sync.WaitGroup{}
	busy.Go(func() { // one of its requests may fail while the node comes back
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			k := take(t, a, "busy"+strconv.Itoa(i%10))
			release(t, k)
		}
	})
	time.Sleep(2 * time.Second) // a part of the leases is over
	nodes.Members[2].Start()
	eventually(t, "held by the node that was down", everywhere)
	close(stop)
	busy.Wait()
	nodes.Members[0].Kill() // it loses what it has
	nodes.Members[0].Start()
	eventually(t, "held by the node that has lost it", everywhere)
	for i, n := range cs {
		most := time.Duration(float64(time.Until(end))*(1+redlock.DefaultDrift)) + 100*time.Millisecond
		if left := n.PTTL(t.Context(), keyOf("f")).Val(); left > most {
			t.Errorf("node %d keeps a lease for %v that is not renewed, and has %v left", i, left, most)
		}
	}
	if _, err := b.TryAcquire(t.Context(), "a"); !errors.Is(err, locker.ErrNotAcquired) {
		t.Fatalf("TryAcquire of what is held: %v", err)
	}
	for _, k := range []*locker.Lock{k, f, r} {
		if k.Err() != nil {
			t.Fatal(k.Err())
		}
		release(t, k)
	}
}

// A node that has not answered since the process began gets the lease when it answers.
func TestRepairWhenFirstReached(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	c := client(t, nodes.URL())
	nodes.Members[2].Pause() // its connections are accepted, and stay open
	k := take(t, c, "a", locker.WithTTL(time.Minute))
	time.Sleep(2500 * time.Millisecond) // the requests for the grant are given up, and what was to be tried again a second later
	nodes.Members[2].Resume()
	eventually(t, "held by the node that was silent", func() bool { return heldOn(t, cs, "a") == 3 })
	release(t, k)
}

// A lease that a majority has forgotten is reported as lost when that is back.
func TestForgottenIsToldWhenBack(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	c := client(t, nodes.URL())
	k := take(t, c, "a", locker.WithTTL(time.Minute))
	eventually(t, "held on all nodes", func() bool { return heldOn(t, clients(t, nodes), "a") == 3 })
	for _, m := range nodes.Members[:2] {
		m.Kill()
	}
	for _, m := range nodes.Members[:2] {
		m.Start()
	}
	select {
	case <-k.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not notified before the next renewal")
	}
}

// TestReplicasNotifyNobody: nodes that have been made replicas publish for those who have listened to them, and refuse to
// write. So they notify no holder of a break that they have not done.
func TestReplicasNotifyNobody(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	c := client(t, nodes.URL())
	k := take(t, c, "a", locker.WithTTL(time.Minute))
	all := clients(t, nodes)
	eventually(t, "held on all nodes, and listened to", func() bool {
		listening := 0
		for _, n := range all {
			if channels, err := n.PubSubChannels(t.Context(), "*").Result(); err == nil && len(channels) > 0 {
				listening++
			}
		}
		return listening == len(all) && heldOn(t, all, "a") == len(all)
	})
	for _, n := range all {
		if err := n.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Break(t.Context(), "a", k.Token()); err == nil {
		t.Error("replicas have broken a ticket")
	}
	select {
	case <-k.Done():
		t.Errorf("the holder was notified of a loss that was refused: %v", k.Err())
	case <-time.After(200 * time.Millisecond):
	}
	for _, n := range all {
		if err := n.SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
	}
	release(t, k)
}

func TestNoRepairWithoutMajority(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	c := client(t, nodes.URL())
	k := take(t, c, "a", locker.WithTTL(3*time.Second)) // not lost before, on a busy machine
	eventually(t, "held on all nodes", func() bool { return heldOn(t, cs, "a") == 5 })
	for _, n := range cs[:3] {
		n.Del(t.Context(), keyOf("a"))
	}
	select {
	case <-k.Done():
	case <-time.After(3 * time.Second):
		t.Fatal("the loss of a majority was not noticed")
	}
	eventually(t, "nothing left of it", func() bool { return heldOn(t, cs, "a") == 0 })
}

func TestPartition(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	left, right := nodes.Proxies(t), nodes.Proxies(t)
	a, b := client(t, left.URL()), client(t, right.URL())
	const ttl = 3 * time.Second // not lost while it is renewed, on a busy machine
	first := take(t, a, "a", locker.WithTTL(ttl))
	// a keeps two nodes, b has three.
	for i := range nodes.Members {
		if i < 2 {
			right.Proxies[i].Cut()
		} else {
			left.Proxies[i].Cut()
		}
	}
	second := take(t, b, "a", locker.WithTTL(time.Minute)) // it must outlast the test
	if first.Err() == nil {
		t.Fatal("two hold: the one with a minority believes so still")
	}
	if second.Token() <= first.Token() {
		t.Fatalf("token %d after %d", second.Token(), first.Token())
	}
	if _, err := a.TryAcquire(t.Context(), "other"); err == nil {
		t.Fatal("acquired with a minority")
	}
	left.Heal()
	right.Heal()
	eventually(t, "TryAcquire of what is held, with all nodes back", func() bool {
		k, err := a.TryAcquire(t.Context(), "a")
		if k != nil {
			t.Fatal("acquired what is held")
		}
		return errors.Is(err, locker.ErrNotAcquired)
	})
	release(t, second)
}

func TestLostAnswers(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	way := nodes.Proxies(t)
	a, b := client(t, way.URL()), client(t, nodes.URL())
	release(t, take(t, a, "warm"))
	for _, p := range way.Proxies[:3] {
		p.DropReplies(true)
	}
	if k, err := a.TryAcquire(t.Context(), "a"); err == nil {
		t.Fatalf("acquired (token %d) though a majority's answers were lost", k.Token())
	}
	way.Heal()
	release(t, take(t, b, "a"))
	eventually(t, "nothing left of it", func() bool { return heldOn(t, cs, "a") == 0 })
}

// A waiter's ticket is put in the queue of a node that was down when it was queued, or has
// lost it. So any majority can grant it when its turn comes.
func TestTicketIsPutBack(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	a, b := client(t, nodes.URL()), client(t, nodes.URL())
	release(t, take(t, a, "warm"))
	waits := func(node int) func() bool {
		return func() bool {
			return heldOn(t, cs, "a") == 3 && cs[node].ZCard(t.Context(), keyOf("a")+":rx").Val() == 1
		}
	}
	nodes.Members[2].Kill()
	k := take(t, a, "a", locker.WithTTL(time.Minute))
	got := queue(t, b, "a", 2)
	nodes.Members[2].Start()
	eventually(t, "queued on the node that was down", waits(2))
	nodes.Members[1].Kill() // it loses what it has
	nodes.Members[1].Start()
	eventually(t, "queued on the node that has lost it", waits(1))
	nodes.Members[0].Kill()
	release(t, k)
	release(t, granted(t, got))
}

// A wait begins though a majority is silent for longer than the node timeout.
func TestSlowMajority(t *testing.T) {
	t.Parallel()
	ways := testbed.RedisN(t, 3).Proxies(t)
	d := openAt(t, ways.URL())
	first := driver.Request{Name: "first", ID: newID(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), first); err != nil { // and the nodes have the protocol version
		t.Fatal(err)
	}
	for _, p := range ways.Proxies[:2] {
		p.HoldReplies(true)
	}
	time.AfterFunc(1300*time.Millisecond, ways.Heal)
	r := driver.Request{Name: "a", ID: newID(), TTL: time.Minute, Wait: true}
	if _, err := d.Acquire(t.Context(), r); err != nil {
		t.Error(err)
	}
}
