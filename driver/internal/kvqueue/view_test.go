package kvqueue

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lockerproject/locker/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a queue as the store has it.
type model struct {
	now  uint64
	live []Entry
}

func (m *model) snapshot() Snapshot {
	return Snapshot{Complete: m.now, Entries: slices.Clone(m.live)}
}

// put adds an entry under the lowest key that is free: keys are used again.
func (m *model) put(shared bool, limit int) Entry {
	m.now++
	e := Entry{Number: m.now, Shared: shared, Limit: limit}
	for slot := 0; e.Key == "" || slices.ContainsFunc(m.live, func(o Entry) bool { return o.Key == e.Key }); slot++ {
		e.Key = fmt.Sprint(shared, slot)
	}
	m.live = append(m.live, e)
	return e
}

// rule returns what driver.Granted grants.
func (m *model) rule() (numbers []uint64) {
	queue := make([]driver.Ticket, len(m.live))
	for i, e := range m.live {
		queue[i] = driver.Ticket{Shared: e.Shared, Limit: e.Limit}
	}
	for i, ok := range driver.Granted(queue) {
		if ok {
			numbers = append(numbers, m.live[i].Number)
		}
	}
	return numbers
}

// A view that gets snapshots late, and deletions early, late and twice, never grants
// what the rule does not grant. Once it has all news, in whatever order, it grants all
// that the rule grants.
func TestViewFollowsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			v       = newView()
			m       = model{now: 1}
			pending []func() // news that is still under way
		)
		limit := func(e Entry) int { return e.Limit }
		check := func(complete bool) {
			want := m.rule()
			var got []uint64
			for _, number := range v.granted(limit) {
				if number <= v.complete && slices.ContainsFunc(m.live, func(e Entry) bool { return e.Number == number }) {
					got = append(got, number)
				}
			}
			for _, number := range got {
				if !slices.Contains(want, number) {
					t.Fatalf("%d is granted by the view, and not by the queue %v", number, m.live)
				}
			}
			if complete && !slices.Equal(got, want) {
				t.Fatalf("granted by the view: %v, by the queue %v: %v", got, m.live, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				e := m.put(rapid.Bool().Draw(t, "shared"), 0)
				if e.Shared {
					e.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
					m.live[len(m.live)-1].Limit = e.Limit
				}
				if rapid.Bool().Draw(t, "read") {
					then := m.snapshot()
					pending = append(pending, func() { v.merge(then) })
				}
			},
			"read": func(*rapid.T) {
				then := m.snapshot()
				pending = append(pending, func() { v.merge(then) })
			},
			"leave": func(t *rapid.T) {
				if len(m.live) == 0 {
					t.Skip("nobody")
				}
				m.now++
				i := rapid.IntRange(0, len(m.live)-1).Draw(t, "who")
				g := Gone{Key: m.live[i].Key, Before: m.now}
				if rapid.Bool().Draw(t, "own") {
					g.Before = m.live[i].Number + 1
				}
				m.live = slices.Delete(slices.Clone(m.live), i, i+1)
				notified := rapid.IntRange(1, 3).Draw(t, "notified") // now, later, or both
				if notified&1 != 0 {
					v.remove(g)
				}
				if notified&2 != 0 {
					pending = append(pending, func() { v.remove(g) })
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
		then := m.snapshot()
		read := func() { v.merge(then) }
		for len(m.live) > 0 && rapid.Bool().Draw(t, "leaves") { // while that is read
			m.now++
			g := Gone{Key: m.live[0].Key, Before: m.now}
			m.live = slices.Clone(m.live[1:])
			pending = append(pending, func() { v.remove(g) })
		}
		for _, news := range rapid.Permutation(append(pending, read)).Draw(t, "order") {
			news()
		}
		check(true)
		if len(v.entries) != len(m.live) {
			t.Fatalf("the view has %d entries for a queue of %d", len(v.entries), len(m.live))
		}
		if v.merge(m.snapshot()); len(v.gone) != 0 {
			t.Fatalf("the view has %d deletions of a queue that was read after them", len(v.gone))
		}
	})
}

// Every blocker blocks its ticket until the blocker has gone, unless blockers says that a
// part of them may be enough.
func TestBlockers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, m := newView(), model{}
		for range rapid.IntRange(1, 8).Draw(t, "ahead") {
			shared := rapid.Bool().Draw(t, "shared")
			m.put(shared, 0)
		}
		last := &m.live[len(m.live)-1]
		if last.Shared {
			last.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
		}
		self := *last
		v.merge(m.snapshot())
		ahead := slices.Clone(m.live[:len(m.live)-1])
		if grants(ahead, self.Shared, self.Limit) {
			return
		}
		blockers, some := v.blockers(self, false)
		if len(blockers) == 0 {
			t.Fatalf("%v is blocked by nothing in %v", self, m.live)
		}
		for _, stays := range blockers {
			rest := slices.DeleteFunc(slices.Clone(ahead), func(e Entry) bool { return slices.Contains(blockers, e) && e != stays })
			if !some && grants(rest, self.Shared, self.Limit) {
				t.Fatalf("%v need not wait for %v in %v", self, stays, m.live)
			}
		}
		rest := slices.DeleteFunc(slices.Clone(ahead), func(e Entry) bool { return !slices.Contains(blockers, e) })
		if !some && !self.Shared && len(rest) != len(ahead) {
			t.Fatalf("%v does not wait for all of %v", self, ahead)
		}
	})
}
