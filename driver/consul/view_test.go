package consul

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// randomQueue makes a queue with numbers that are multiples of step.
func randomQueue(r *rand.Rand, n, step int) []entry {
	queue := make([]entry, n)
	for i := range queue {
		queue[i].CreateIndex = uint64((i + 1) * step)
		queue[i].ModifyIndex = queue[i].CreateIndex
		queue[i].Key = string(rune('a' + i))
		if queue[i].Shared = r.IntN(3) > 0; queue[i].Shared {
			queue[i].Limit = r.IntN(4)
		}
	}
	return queue
}

func grantedIn(v *view) (numbers []uint64) {
	v.granted(func(n uint64) { numbers = append(numbers, n) })
	return numbers
}

// expected is the same by the rule of the driver interface.
func expected(queue []entry) (numbers []uint64) {
	for i, granted := range driver.Granted(tickets(queue)) {
		if granted {
			numbers = append(numbers, queue[i].CreateIndex)
		}
	}
	return numbers
}

// However tickets leave, a view that is told of it grants what the rule says,
// and one that is told of a part of it grants nothing else.
func TestViewFollowsRule(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		queue := randomQueue(r, r.IntN(10), 10)
		var exact, partial view
		exact.replace(queue, 1000, true)
		partial.replace(queue, 1000, true)
		for {
			if got, want := grantedIn(&exact), expected(queue); !slices.Equal(got, want) {
				t.Fatalf("granted %v, want %v, in %+v", got, want, queue)
			}
			for _, n := range grantedIn(&partial) {
				if i := slices.IndexFunc(queue, func(e entry) bool { return e.CreateIndex == n }); i >= 0 && !driver.Grantable(tickets(queue), i) {
					t.Fatalf("an old view grants %d, in %+v", n, queue)
				}
			}
			if len(queue) == 0 {
				break
			}
			i := r.IntN(len(queue))
			exact.remove(queue[i].CreateIndex)
			if r.IntN(2) == 0 {
				partial.remove(queue[i].CreateIndex)
			}
			queue = slices.Delete(queue, i, i+1)
		}
	}
}

// Nothing behind what the view knows completely is granted: others may stand
// in between.
func TestViewIncomplete(t *testing.T) {
	var v view
	v.replace(nil, 5, true)
	v.add(queued{number: 9, key: "mine"})
	if got := grantedIn(&v); len(got) > 0 {
		t.Fatalf("granted %v with a view that ends at 5", got)
	}
	queue := randomQueue(rand.New(rand.NewPCG(3, 4)), 1, 7)
	queue[0].Shared = false
	v.replace(queue, 8, true) // 7 stands ahead; 9 is kept
	if b, _ := v.blocker(9); !v.has(9) || b.number != 7 {
		t.Fatalf("view %+v: want 9 behind 7", v)
	}
	v.replace(append(queue, entry{pair: pair{CreateIndex: 9}}), 9, true)
	v.remove(7)
	if got := grantedIn(&v); !slices.Equal(got, []uint64{9}) {
		t.Fatalf("granted %v, want 9", got)
	}
}

// As long as what blocker names has not gone, the first waiter is not granted.
func TestViewBlocker(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		queue := randomQueue(r, 2+r.IntN(8), 10)
		granted := expected(queue)
		first := slices.IndexFunc(queue, func(e entry) bool { return !slices.Contains(granted, e.CreateIndex) })
		if first < 0 {
			continue
		}
		var v view
		v.replace(queue, 1000, true)
		b, one := v.blocker(queue[first].CreateIndex)
		if !one {
			continue
		}
		// Everything ahead goes but what is watched.
		kept := []entry{}
		for _, e := range queue {
			if e.CreateIndex == b.number || e.CreateIndex >= queue[first].CreateIndex {
				kept = append(kept, e)
			}
		}
		if slices.Contains(expected(kept), queue[first].CreateIndex) {
			t.Fatalf("%d is granted while %d, which is watched for it, stands, in %+v", queue[first].CreateIndex, b.number, queue)
		}
	}
}

// A queue of many waiters costs little to go through.
func TestViewForgets(t *testing.T) {
	var v view
	const n = 10000
	for i := range uint64(n) {
		v.add(queued{number: i + 1, key: "k"})
	}
	v.complete = n
	for i := range uint64(n) {
		if got := grantedIn(&v); !slices.Equal(got, []uint64{i + 1}) {
			t.Fatalf("granted %v, want %d", got, i+1)
		}
		v.remove(i + 1)
	}
	if len(v.tickets) > 0 {
		t.Errorf("%d tickets are kept of an empty queue", len(v.tickets))
	}
}

// A listing that was read before a ticket was created does not say that it has gone.
func TestListingFromThePast(t *testing.T) {
	listed := &listing{index: 9, keys: map[string]struct{}{"there": {}}, next: make(chan struct{})}
	w := &sharedWatch{store: &store{wait: 10 * time.Millisecond}, users: 1, latest: listed}
	for _, c := range []struct {
		key    string
		number uint64
		gone   bool
	}{{"there", 5, false}, {"missing", 5, true}, {"missing", 10, false}} {
		if gone, err := w.gone(t.Context(), queued{key: c.key, number: c.number}); gone != c.gone || err != nil {
			t.Errorf("ticket %d at %q: gone %v, %v, want %v", c.number, c.key, gone, err, c.gone)
		}
	}
}
