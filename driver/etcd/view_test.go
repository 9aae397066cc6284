package etcd

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"

	"github.com/lockerproject/locker/driver"
)

// A view that is fed snapshots late and deletions early, late and twice never
// grants what the rule does not, and grants all that it does once it has been told.
func TestViewFollowsTheRule(t *testing.T) {
	const line = "p/n#"
	rapid.Check(t, func(t *rapid.T) {
		type ticket struct {
			place
			limit int
		}
		var (
			v             = newView()
			now     int64 = 1
			live    []ticket
			limits  = map[int64]int{}
			pending []func() // news that is still under way
		)
		limitOf := func(rev int64) int { return limits[rev] }
		snapshot := func() []*mvccpb.KeyValue {
			var kvs []*mvccpb.KeyValue
			for _, p := range live {
				kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(p.key), CreateRevision: p.rev})
			}
			return kvs
		}
		rule := func() (revs []int64) {
			ts := make([]driver.Ticket, len(live))
			for i, p := range live {
				ts[i] = driver.Ticket{Shared: p.shared, Limit: p.limit}
			}
			for i, ok := range driver.Granted(ts) {
				if ok {
					revs = append(revs, live[i].rev)
				}
			}
			return revs
		}
		check := func(complete bool) {
			want := rule()
			var got []int64
			for _, rev := range v.granted(limitOf) {
				if rev <= v.snap && slices.ContainsFunc(live, func(p ticket) bool { return p.rev == rev }) {
					got = append(got, rev)
				}
			}
			for _, rev := range got {
				if !slices.Contains(want, rev) {
					t.Fatalf("%d is granted by the view, and not by the line %v", rev, live)
				}
			}
			if complete && !slices.Equal(got, want) {
				t.Fatalf("granted by the view: %v, by the line %v: %v", got, live, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				now++
				shared := rapid.Bool().Draw(t, "shared")
				class := class(shared)
				slot := 0 // the lowest that is free: keys are used again
				for slices.ContainsFunc(live, func(p ticket) bool { return p.key == fmt.Sprint(line, class, slot) }) {
					slot++
				}
				p := ticket{place: place{rev: now, key: fmt.Sprint(line, class, slot), shared: shared}}
				if shared {
					p.limit = rapid.IntRange(0, 3).Draw(t, "limit")
				}
				limits[p.rev] = p.limit
				ahead := snapshot()
				live = append(live, p)
				v.begin()
				pending = append(pending, func() {
					if rapid.Bool().Draw(t, "whole") {
						v.joined(line, p.place, ahead)
					} else {
						v.add(p.place)
					}
					v.end()
				})
			},
			"leave": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("nobody")
				}
				now++
				i := rapid.IntRange(0, len(live)-1).Draw(t, "who")
				key, at := live[i].key, now
				live = slices.Delete(slices.Clone(live), i, i+1)
				told := rapid.IntRange(1, 3).Draw(t, "told") // now, later, or both
				if told&1 != 0 {
					v.remove(key, at)
				}
				if told&2 != 0 {
					pending = append(pending, func() { v.remove(key, at) })
				}
			},
			"news": func(t *rapid.T) {
				if len(pending) == 0 {
					t.Skip("no news")
				}
				i := rapid.IntRange(0, len(pending)-1).Draw(t, "which")
				news := pending[i]
				pending = slices.Delete(pending, i, i+1)
				news()
			},
			"": func(*rapid.T) { check(false) },
		})
		v.begin()
		v.merge(line, now, snapshot())
		for _, news := range pending { // late news change nothing
			news()
		}
		v.end()
		check(true)
		if len(v.places) != len(live) || len(v.revs) != len(live) || len(v.deleted) != 0 {
			t.Fatalf("the view has %d places, %d keys and %d deletions for a line of %d", len(v.places), len(v.revs), len(v.deleted), len(live))
		}
	})
}

// Different names have different lines, and no key of one lies in another.
func TestNamesAreApart(t *testing.T) {
	d := &Driver{prefix: "a", instance: "0123"}
	longer := &Driver{prefix: "a/b", instance: "0123"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 20, 512).Draw(t, "name")
		other := rapid.OneOf(rapid.StringN(1, 20, 512), rapid.Just(name+"/x"), rapid.Just(name+"#x")).Draw(t, "other")
		line := d.linePrefix(name)
		key := d.slotKey(line, rapid.Bool().Draw(t, "shared"), 7)
		if got, l, ok := d.splitKey(key); !ok || got != name || l != line {
			t.Fatalf("%q is taken apart as name %q, line %q, %v", key, got, l, ok)
		}
		if slot, ok := d.ownSlot(line, key); !ok || slot != 7 {
			t.Fatalf("slot %d, %v of %q", slot, ok, key)
		}
		for _, l := range []string{d.linePrefix(other), longer.linePrefix(other), longer.linePrefix(name)} {
			if l != line && len(key) >= len(l) && key[:len(l)] == l {
				t.Fatalf("%q of %q lies in the line %q", key, name, l)
			}
		}
		if (name == other) != (line == d.linePrefix(other)) {
			t.Fatalf("%q and %q: lines %q and %q", name, other, line, d.linePrefix(other))
		}
		if _, _, ok := d.splitKey(longer.slotKey(longer.linePrefix(other), true, 0)); ok {
			t.Fatal("a key of a longer prefix is taken for one of ours")
		}
	})
}
