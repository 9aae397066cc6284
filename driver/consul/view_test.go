package consul

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// randomLine makes a line with numbers that are multiples of step.
func randomLine(r *rand.Rand, n, step int) []entry {
	line := make([]entry, n)
	for i := range line {
		line[i].CreateIndex = uint64((i + 1) * step)
		line[i].ModifyIndex = line[i].CreateIndex
		line[i].Key = string(rune('a' + i))
		if line[i].Shared = r.IntN(3) > 0; line[i].Shared {
			line[i].Limit = r.IntN(4)
		}
	}
	return line
}

func grantedIn(v *view, widest int) (numbers []uint64) {
	v.granted(widest, func(n uint64) { numbers = append(numbers, n) })
	return numbers
}

// expected is the same by the rule of the seam.
func expected(line []entry) (numbers []uint64) {
	for i, granted := range driver.Granted(tickets(line)) {
		if granted {
			numbers = append(numbers, line[i].CreateIndex)
		}
	}
	return numbers
}

// However tickets leave, a view that is told of it grants what the rule says,
// and one that is told of a part of it grants nothing else.
func TestViewFollowsRule(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		line := randomLine(r, r.IntN(10), 10)
		var exact, partial view
		exact.replace(line, 1000, true)
		partial.replace(line, 1000, true)
		for {
			if got, want := grantedIn(&exact, 0), expected(line); !slices.Equal(got, want) {
				t.Fatalf("granted %v, want %v, in %+v", got, want, line)
			}
			for _, n := range grantedIn(&partial, 0) {
				if i := slices.IndexFunc(line, func(e entry) bool { return e.CreateIndex == n }); i >= 0 && !driver.Grantable(tickets(line), i) {
					t.Fatalf("an old view grants %d, in %+v", n, line)
				}
			}
			if len(line) == 0 {
				break
			}
			i := r.IntN(len(line))
			exact.remove(line[i].CreateIndex)
			if r.IntN(2) == 0 {
				partial.remove(line[i].CreateIndex)
			}
			line = slices.Delete(line, i, i+1)
		}
	}
}

// Nothing behind what the view knows completely is granted: others may stand
// in between.
func TestViewIncomplete(t *testing.T) {
	var v view
	v.replace(nil, 5, true)
	v.add(spot{number: 9, key: "mine"})
	if got := grantedIn(&v, 0); len(got) > 0 {
		t.Fatalf("granted %v with a view that ends at 5", got)
	}
	line := randomLine(rand.New(rand.NewPCG(3, 4)), 1, 7)
	line[0].Shared = false
	v.replace(line, 8, true) // 7 stands ahead; 9 is kept
	if !v.has(9) || v.blocker(9).number != 7 {
		t.Fatalf("view %+v: want 9 behind 7", v)
	}
	v.replace(append(line, entry{pair: pair{CreateIndex: 9}}), 9, true)
	v.remove(7)
	if got := grantedIn(&v, 0); !slices.Equal(got, []uint64{9}) {
		t.Fatalf("granted %v, want 9", got)
	}
}

// As long as what blocker names has not gone, the first waiter is not granted.
func TestViewBlocker(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		line := randomLine(r, 2+r.IntN(8), 10)
		granted := expected(line)
		first := slices.IndexFunc(line, func(e entry) bool { return !slices.Contains(granted, e.CreateIndex) })
		if first < 0 {
			continue
		}
		var v view
		v.replace(line, 1000, true)
		b := v.blocker(line[first].CreateIndex)
		if b.whole {
			continue
		}
		// Everything ahead goes but what is watched.
		kept := []entry{}
		for _, e := range line {
			if e.CreateIndex == b.number || e.CreateIndex >= line[first].CreateIndex {
				kept = append(kept, e)
			}
		}
		if slices.Contains(expected(kept), line[first].CreateIndex) {
			t.Fatalf("%d is granted while %d, which is watched for it, stands, in %+v", line[first].CreateIndex, b.number, line)
		}
	}
}

// A line of many waiters costs little to go through.
func TestViewForgets(t *testing.T) {
	var v view
	const n = 10000
	for i := range uint64(n) {
		v.add(spot{number: i + 1, key: "k"})
	}
	v.complete = n
	for i := range uint64(n) {
		if got := grantedIn(&v, 1); !slices.Equal(got, []uint64{i + 1}) {
			t.Fatalf("granted %v, want %d", got, i+1)
		}
		v.remove(i + 1)
	}
	if len(v.spots) > 128 {
		t.Errorf("%d spots are kept of an empty line", len(v.spots))
	}
}

// A bucket that was read before a ticket was created does not say that it has gone.
func TestBucketFromThePast(t *testing.T) {
	b := &bucket{index: 9, keys: map[string]struct{}{"there": {}}}
	for _, c := range []struct {
		key    string
		number uint64
		gone   bool
	}{{"there", 5, false}, {"missing", 5, true}, {"missing", 10, false}} {
		sub := &subscriber{key: c.key, number: c.number, news: make(chan error, 1)}
		b.tell(sub)
		if gone := len(sub.news) == 1; gone != c.gone {
			t.Errorf("ticket %d at %q: gone %v, want %v", c.number, c.key, gone, c.gone)
		}
	}
}
