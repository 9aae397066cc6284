package kvqueue

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// handing is a store whose deletion of an exclusive ticket that was held hands the lock
// over to who watches it.
type handing struct {
	*fake
	held    map[Entry]bool // what was deleted like that
	watches int
}

func (s *handing) Delete(ctx context.Context, t *Ticket) error {
	if t.Held && !t.Shared {
		s.mu.Lock()
		s.held[t.Entry] = true
		s.mu.Unlock()
	}
	return s.fake.Delete(ctx, t)
}

func (s *handing) Watch(ctx context.Context, w Watching, tell func(Event)) error {
	s.mu.Lock()
	s.watches++
	s.mu.Unlock()
	return s.fake.Watch(ctx, w, func(ev Event) {
		s.mu.Lock()
		there := slices.Contains(entries(s.queues[w.Name]), w.First)
		for i, g := range ev.Gone {
			ev.Gone[i].All = g.Key == w.Aim.Key && s.held[w.Aim] && there
		}
		s.mu.Unlock()
		tell(ev)
	})
}

// anotherHanding is an engine of another process on such a store.
func (b *bed) anotherHanding() *Engine {
	e := New(Options{Store: &handing{fake: b.store, held: make(map[Entry]bool)}})
	b.others = append(b.others, e)
	return e
}

// The lock is handed over between processes without reading the queue, to the next and
// to nobody else.
func TestHandOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := &handing{fake: b.store, held: make(map[Entry]bool)}
		var es []*Engine
		for range 5 {
			es = append(es, New(Options{Store: s}))
		}
		b.others = es
		h := b.get(es[0], request("a", "0"))
		by, next := es[0], append(es[1:], es[1]) // the last waits behind others of the same process
		var ws []*waiter
		for i, e := range next {
			ws = append(ws, b.wait(e, request("a", string(rune('1'+i)))))
		}
		reads, watches := b.store.count("read"), s.watches
		for i, w := range ws {
			b.granted(w, false)
			b.drop(by, h)
			b.granted(w, true)
			h, by = w.r.Hold(w.grant.Token), next[i]
		}
		b.drop(by, h)
		if n := b.store.count("read") - reads; n > 0 {
			t.Errorf("%d grants took %d readings of the queue", len(ws), n)
		}
		if n := s.watches - watches; n != 1 { // of the last, when it is the first of its process
			t.Errorf("%d grants took %d watches more, want 1", len(ws), n)
		}
	})
}

// A ticket that leaves before it is granted hands nothing over.
func TestWaiterHandsNothingOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := &handing{fake: b.store, held: make(map[Entry]bool)}
		one, two := New(Options{Store: s}), New(Options{Store: s})
		b.others = []*Engine{one, two}
		h := b.get(b.e, request("a", "0"))
		first, second := b.wait(one, request("a", "1")), b.wait(two, request("a", "2"))
		first.cancel()
		b.drop(one, first.r.Hold(0))
		b.granted(second, false)
		b.drop(b.e, h)
		b.granted(second, true)
		b.drop(two, second.r.Hold(0))
	})
}

// A lock that is handed over to a waiter that has given up meanwhile is not granted to
// the one behind it before the queue was read: that one's entry may have been removed.
func TestHandOverToAnother(t *testing.T) {
	inBubble(t, func(b *bed) {
		e := b.anotherHanding()
		h := b.get(b.e, request("a", "0"))
		first, second := b.wait(e, request("a", "1")), b.wait(e, request("a", "2"))
		e.mu.Lock()
		w := e.queues["a"].watcher
		aim, gaveUp, next := w.view.entries[0], e.tickets["1"].Entry, e.tickets["2"].Ticket
		e.mu.Unlock()
		reads := b.store.count("read")
		first.cancel()
		b.drop(e, first.r.Hold(0))
		w.told(b.Context(), gaveUp, Event{Gone: []Gone{{Key: gaveUp.Key, Before: gaveUp.Number + 1, All: true}}})
		b.granted(second, false)
		if n := b.store.count("read") - reads; n > 0 {
			t.Errorf("the queue was read %d times for what had left here", n)
		}
		if err := b.store.Delete(b.Context(), &next); err != nil { // by hand
			t.Fatal(err)
		}
		w.told(b.Context(), gaveUp, Event{Gone: []Gone{{Key: aim.Key, Before: aim.Number + 1, All: true}}})
		b.granted(second, false)
		if !second.done || !errors.Is(second.err, driver.ErrLost) {
			t.Errorf("a waiter whose ticket was removed: %v", second.err)
		}
		b.drop(b.e, h)
	})
}
