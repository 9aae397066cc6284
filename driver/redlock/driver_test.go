package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "test"

// keyOf is the main key of a name.
func keyOf(name string) string { return prefix + ":{" + name + "}" }

func client(t *testing.T, address string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), address+"?prefix="+prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func take(t *testing.T, c *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	k, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t *testing.T, k *locker.Lock) {
	t.Helper()
	if err := k.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// eventually polls a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10s", what)
		}
	}
}

// queue begins to wait and returns once the line has n tickets.
func queue(t *testing.T, c *locker.Client, name string, n int, opts ...locker.Option) <-chan *locker.Lock {
	t.Helper()
	got := make(chan *locker.Lock, 1)
	go func() {
		defer close(got)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if k, err := c.Acquire(ctx, name, opts...); err == nil {
			got <- k
		}
	}()
	eventually(t, "a ticket in line", func() bool {
		line, err := c.Inspect(context.Background(), name)
		return err == nil && len(line.Tickets) == n
	})
	return got
}

func granted(t *testing.T, got <-chan *locker.Lock) *locker.Lock {
	t.Helper()
	select {
	case k := <-got:
		if k == nil {
			t.Fatal("Acquire has failed")
		}
		return k
	case <-time.After(10 * time.Second):
		t.Fatal("not granted within 10s")
	}
	return nil
}

// heldOn counts the nodes on which a name's main key is there.
func heldOn(t *testing.T, cs []*goredis.Client, name string) int {
	t.Helper()
	n := 0
	for _, c := range cs {
		if v, err := c.Exists(context.Background(), keyOf(name)).Result(); err == nil {
			n += int(v)
		}
	}
	return n
}

func TestHoldsOnAllNodes(t *testing.T) {
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

func TestMinorityDown(t *testing.T) {
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
	begun := time.Now()
	for range 50 {
		release(t, take(t, c, "a"))
	}
	if took := time.Since(begun); took > 900*time.Millisecond {
		t.Errorf("50 cycles took %v: they waited for silent nodes", took)
	}
}

func TestSlowNode(t *testing.T) {
	nodes := testbed.RedisN(t, 5)
	ways := nodes.Proxies(t)
	c := client(t, ways.URL())
	release(t, take(t, c, "a"))
	ways.Proxies[2].Delay(150 * time.Millisecond)
	begun := time.Now()
	for range 20 {
		release(t, take(t, c, "a"))
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("20 cycles took %v: they waited for the slow node", took)
	}
	// Requests to one node are run in their order: what was undone before this
	// is undone, though it was slow.
	cs := clients(t, nodes)
	last := take(t, c, "last")
	eventually(t, "held on the slow node", func() bool { return heldOn(t, cs, "last") == 5 })
	if n := heldOn(t, cs, "a"); n != 0 {
		t.Errorf("a request that came late holds on %d nodes", n)
	}
	release(t, last)
}

func TestSilentNodeIsUndone(t *testing.T) {
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
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	a, b := client(t, nodes.URL()), client(t, nodes.URL())
	k := take(t, a, "a", locker.WithTTL(900*time.Millisecond))
	r := take(t, a, "r", locker.Shared(), locker.WithTTL(900*time.Millisecond))
	eventually(t, "held on all nodes", func() bool { return heldOn(t, cs, "a")+heldOn(t, cs, "r") == 10 })
	// One after the other loses all it had. A majority would be lost without repair.
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

func TestNoRepairWithoutMajority(t *testing.T) {
	nodes := testbed.RedisN(t, 5)
	cs := clients(t, nodes)
	c := client(t, nodes.URL())
	k := take(t, c, "a", locker.WithTTL(900*time.Millisecond))
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
	nodes := testbed.RedisN(t, 5)
	left, right := nodes.Proxies(t), nodes.Proxies(t)
	a, b := client(t, left.URL()), client(t, right.URL())
	first := take(t, a, "a", locker.WithTTL(time.Second))
	// a keeps two nodes, b has three.
	for i := range nodes.Members {
		if i < 2 {
			right.Proxies[i].Cut()
		} else {
			left.Proxies[i].Cut()
		}
	}
	second := take(t, b, "a", locker.WithTTL(time.Second))
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

func TestForeignHolder(t *testing.T) {
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
	line, err := c.Inspect(t.Context(), "a")
	if err != nil || len(line.Tickets) != 1 || line.Tickets[0].Owner != redlock.Foreign {
		t.Fatalf("the line is %+v, %v", line, err)
	}
	got := queue(t, c, "a", 2)
	for _, n := range cs[1:4] {
		n.Del(t.Context(), keyOf("a"))
	}
	begun := time.Now()
	release(t, granted(t, got))
	if took := time.Since(begun); took > time.Second {
		t.Errorf("granted %v after the other client's release", took)
	}
}

// Nodes that are asked in different orders agree on one line.
func TestDuel(t *testing.T) {
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

// Several who cannot wait ask at once for what is free: one gets it.
func TestSplitTries(t *testing.T) {
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

// A holder that some nodes do not know of counts all the same: of three permits
// one is held on each of three different majorities.
func TestPermitsOnDifferentMajorities(t *testing.T) {
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

func TestNewRefuses(t *testing.T) {
	one := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	two := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:2"})
	three := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:3"})
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:4"}})
	for _, c := range []goredis.UniversalClient{one, two, three, cluster} {
		defer c.Close()
	}
	type list = []goredis.UniversalClient
	var null *goredis.Client
	for _, c := range []struct {
		clients list
		opts    []redlock.Option
		want    string
	}{
		{nil, nil, "0 nodes: want at least 3"},
		{list{one, two}, nil, "2 nodes: want at least 3"},
		{list{one, two, nil}, nil, "client 3 is nil"},
		{list{one, null, two}, nil, "client 2 is nil"},
		{list{one, two, cluster}, nil, "client 3 is a *redis.ClusterClient"},
		{list{one, two, one}, nil, "clients 1 and 3 are of the same server 127.0.0.1:1"},
		{list{one, two, three}, []redlock.Option{redlock.WithPrefix("{")}, `prefix "{"`},
		{list{one, two, three}, []redlock.Option{redlock.WithNodeTimeout(0)}, "node timeout 0s: want at least 1ms"},
		{list{one, two, three}, []redlock.Option{redlock.WithDrift(-1)}, "drift -1"},
	} {
		if _, err := redlock.New(c.clients, c.opts...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New: %v, want %q", err, c.want)
		}
	}
	d, err := redlock.New(list{one, two, three}, nil, redlock.WithDrift(0.05))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if got := d.String(); got != "redlock 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3" {
		t.Errorf("String: %s", got)
	}
}

func TestURL(t *testing.T) {
	for address, want := range map[string]string{
		"redlock://:secret@h1":                            "1 nodes: want at least 3",
		"redlock://:secret@h1,h2,h1":                      `host "h1:6379" is given twice`,
		"redlock://:secret@h1,h2,h3?drift=x":              `parameter drift="x"`,
		"redlock://:secret@h1,h2,h3?drift=2":              "drift 2",
		"redlock://:secret@h1,h2,h3?node_timeout=soon":    `node_timeout="soon"`,
		"redlock://:secret@h1,h2,h3?prefix=%7B":           "prefix",
		"redlock://:secret@h1,h2,h3/x":                    `database "x"`,
		"redlock://:secret@h1,h2,h3?replicas=1":           `unknown parameter "replicas"`,
		"redlock://:secret@h1,h2,h3?ca=/nonexistent":      "for TLS",
		"redlock://:secret@h1,h2,h3?tls=true&ca=/missing": "parameter ca",
	} {
		_, err := locker.Open(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is told: %v", err)
		}
	}
	u, err := driver.ParseURL("redlock://user:secret@h1,h2:7000,h3/2?tls=true&drift=0.02&node_timeout=200ms")
	if err != nil {
		t.Fatal(err)
	}
	d, err := driver.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
