package redlock_test

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// bucket returns which of the fences is that of a name.
func bucket(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32() % 1024
}

// colliding returns another name that shares the fence of a name.
func colliding(name string) string {
	for i := 0; ; i++ {
		if other := "other-" + strconv.Itoa(i); bucket(other) == bucket(name) {
			return other
		}
	}
}

// A lease is set again on a node that has lost it, though another name that
// shares its fence was granted there meanwhile: two restarts in a row do not
// end in two holders. The fence stays at the larger number, of the other name.
func TestRepairBesideAnotherName(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	ways := nodes.Proxies(t)
	a, b := client(t, ways.URL()), client(t, nodes.URL())
	other := colliding("a")
	k := take(t, a, "a", locker.WithTTL(time.Minute))
	r := take(t, a, "r", locker.Shared(), locker.WithTTL(time.Minute))
	otherOfR := colliding("r")
	on := func() int { return heldOn(t, cs, "a") + heldOn(t, cs, "r") }
	fence := func(node int) int64 {
		n, err := cs[node].HGet(context.Background(), prefix+":fences", strconv.FormatUint(uint64(bucket("a")), 36)).Int64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "held on all nodes", func() bool { return on() == 6 })
	for i := range 2 {
		ways.Proxies[i].Refuse()
		nodes.Members[i].Kill()
		nodes.Members[i].Start()
		// The holder comes back to the node after the other name was granted there.
		for _, name := range []string{other, otherOfR} {
			eventually(t, "the other name is held on the node", func() bool {
				k, err := b.TryAcquire(t.Context(), name)
				if err != nil {
					return false
				}
				defer release(t, k)
				for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
					if cs[i].Exists(context.Background(), keyOf(name)).Val() == 1 {
						return true
					}
				}
				return false
			})
		}
		before := fence(i)
		ways.Proxies[i].Heal()
		healed := time.Now()
		eventually(t, "held on the node again", func() bool { return on() == 6 || time.Since(healed) > 5*time.Second })
		if on() != 6 {
			t.Errorf("restart %d: the leases are on %d and %d of 3 nodes", i+1, heldOn(t, cs, "a"), heldOn(t, cs, "r"))
		}
		if after := fence(i); after < before {
			t.Errorf("restart %d: the fence was %d, and is %d", i+1, before, after)
		}
	}
	for _, name := range []string{"a", "r"} {
		if _, err := b.TryAcquire(t.Context(), name); !errors.Is(err, locker.ErrNotAcquired) {
			t.Fatalf("TryAcquire of %q, which is held: %v", name, err)
		}
	}
	if err := errors.Join(k.Err(), r.Err()); err != nil {
		t.Fatal(err)
	}
	release(t, k)
	release(t, r)
}

// A repair that another client's short try has blocked is tried again.
func TestRepairIsAskedAgain(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	ways := nodes.Proxies(t)
	a := client(t, ways.URL())
	k := take(t, a, "a", locker.WithTTL(time.Minute))
	eventually(t, "held on all nodes", func() bool { return heldOn(t, cs, "a") == 3 })
	ways.Proxies[0].Refuse()
	nodes.Members[0].Kill()
	nodes.Members[0].Start()
	cs[0].Set(t.Context(), keyOf("a"), "theirs", 2*time.Second)
	ways.Proxies[0].Heal()
	time.Sleep(500 * time.Millisecond) // the repair has been refused
	eventually(t, "held on all nodes again", func() bool {
		v := cs[0].Get(context.Background(), keyOf("a")).Val()
		return v != "" && v != "theirs"
	})
	release(t, k)
}
