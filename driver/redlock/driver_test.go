package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestHoldsOnAllNodes(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	c := client(t, nodes.URL())
	k := take(t, c, "a")
	eventually(t, "held on all nodes", func() bool { return heldOn(t, cs, "a") == 5 })
	for _, n := range cs {
		if n.SetNX(t.Context(), keyOf("a"), "mine", time.Minute).Val() {
			t.Fatal("another client could set the key of a holder")
		}
	}
	release(t, k)
	eventually(t, "released on all nodes", func() bool { return heldOn(t, cs, "a") == 0 })
}

func TestForeignHolder(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	c := client(t, nodes.URL())
	for _, n := range cs[1:4] {
		n.Set(t.Context(), keyOf("a"), "theirs", time.Minute)
	}
	if _, err := c.TryAcquire(t.Context(), "a"); !errors.Is(err, locker.ErrNotAcquired) {
		t.Fatalf("TryAcquire of what another client holds: %v", err)
	}
	if n := heldOn(t, cs, "a"); n != 3 {
		t.Fatalf("a try has left its key: on %d nodes", n)
	}
	q, err := c.Inspect(t.Context(), "a")
	if err != nil || len(q.Tickets) != 1 || q.Tickets[0].Owner != redlock.Foreign {
		t.Fatalf("the queue is %+v, %v", q, err)
	}
	got := queue(t, c, "a", 2)
	for _, n := range cs[1:4] {
		n.Del(t.Context(), keyOf("a"))
	}
	took := testbed.Elapsed(func() { release(t, granted(t, got)) })
	if took > time.Second {
		t.Errorf("granted %v after the other client's release", took)
	}
}

// Nodes that are asked in different orders agree on one queue.
func TestDuel(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	const contenders, rounds = 8, 40
	done := make(chan []uint64, contenders)
	for i := range contenders {
		ways := nodes.Proxies(t)
		for j, p := range ways.Proxies {
			p.Delay(time.Duration((i*3+j*2)%5) * time.Millisecond)
		}
		c := client(t, ways.URL())
		go func() {
			var tokens []uint64
			for range rounds {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				k, err := c.Acquire(ctx, "duel")
				cancel()
				if err != nil {
					t.Error(err)
					break
				}
				tokens = append(tokens, k.Token())
				if err := k.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}
			done <- tokens
		}()
	}
	seen := make(map[uint64]bool)
	for range contenders {
		for _, token := range <-done {
			if seen[token] {
				t.Errorf("token %d was granted twice", token)
			}
			seen[token] = true
		}
	}
	if len(seen) != contenders*rounds {
		t.Errorf("%d grants, want %d", len(seen), contenders*rounds)
	}
}

// Of several tries at once for a free lock, one gets it.
func TestSplitTries(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	const contenders, rounds = 4, 30
	var cs []*locker.Client
	for range contenders {
		cs = append(cs, client(t, nodes.URL()))
	}
	none := 0
	for range rounds {
		got := make(chan *locker.Lock, contenders)
		for _, c := range cs {
			go func() {
				k, err := c.TryAcquire(context.Background(), "split")
				if err != nil && !errors.Is(err, locker.ErrNotAcquired) {
					t.Error(err)
				}
				got <- k
			}()
		}
		var holder *locker.Lock
		for range contenders {
			if k := <-got; k != nil {
				if holder != nil {
					t.Fatal("two hold")
				}
				holder = k
			}
		}
		if holder == nil {
			none++
			continue
		}
		release(t, holder)
	}
	t.Logf("nobody got it in %d of %d rounds", none, rounds)
	if none > rounds/3 {
		t.Errorf("nobody got what was free in %d of %d rounds", none, rounds)
	}
}

// A try that waits to ask again when the driver is closed is not granted.
func TestCloseBetweenTries(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	clients(t, nodes)[0].Set(t.Context(), keyOf("a"), "theirs", time.Minute)
	nodes.Members[2].Kill() // one holds, one is blocked, one is not there: nobody has a majority
	for range 5 {
		d := openAt(t, nodes.URL())
		begun, ended := make(chan struct{}), make(chan error)
		go func() {
			for n := 0; ; n++ {
				if n == 1 {
					close(begun)
				}
				_, err := d.Acquire(context.Background(), driver.Request{Name: "a", ID: newID(), TTL: time.Second})
				if !errors.Is(err, driver.ErrNotAcquired) {
					ended <- err
					return
				}
			}
		}()
		<-begun
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, driver.ErrClosed) {
			t.Fatalf("a try while the driver is closed: %v", err)
		}
	}
}

// A holder that some nodes do not know counts too: of three permits one is held
// on each of three different majorities.
func TestPermitsOnDifferentMajorities(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 5)
	for _, holders := range [][][]int{{{0, 1}, {3, 4}}, {{0, 1}, {2, 3}}, {{1, 2}, {0, 4}}} {
		var locks []*locker.Lock
		name := fmt.Sprint("permits", holders)
		for _, missing := range holders {
			ways := nodes.Proxies(t)
			for _, i := range missing {
				ways.Proxies[i].Refuse()
			}
			locks = append(locks, take(t, client(t, ways.URL()), name, locker.Limit(2)))
		}
		c := client(t, nodes.URL())
		if k, err := c.TryAcquire(t.Context(), name, locker.Limit(2)); !errors.Is(err, locker.ErrNotAcquired) {
			t.Fatalf("a third of two permits: %v, %v", k, err)
		}
		got := queue(t, c, name, 3, locker.Limit(2))
		release(t, locks[0])
		release(t, granted(t, got))
		release(t, locks[1])
	}
}

// A lease does not keep the call that requested it in memory.
func TestHeldKeepsNoCall(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), testbed.RedisN(t, 3).URL(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	freed := make(chan struct{})
	joined := func() func() {
		called := new([1 << 16]byte)
		runtime.AddCleanup(called, func(struct{}) { close(freed) }, struct{}{})
		return func() { called[0]++ }
	}
	r := driver.Request{Name: "a", ID: "1", Owner: "me", TTL: time.Minute, Wait: true, Joined: joined()}
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	h := r.Hold(g.Token)
	r.Joined = nil
	eventually(t, "the request's Joined is let go of", func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	})
	if err := d.Release(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}
