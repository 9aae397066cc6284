package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/queues"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func holds(token uint64, owner string) locker.Ticket {
	return locker.Ticket{Token: token, Owner: owner, Held: true, Since: start, Remaining: 10 * time.Second}
}

func waiting(token uint64, owner string) locker.Ticket {
	return locker.Ticket{Token: token, Owner: owner, Since: start}
}

func kinds(es []event) string {
	var out []string
	for _, e := range es {
		out = append(out, e.Kind+" "+e.Owner)
	}
	return strings.Join(out, ", ")
}

func TestEvents(t *testing.T) {
	t.Parallel()
	type poll = []locker.Ticket
	for _, c := range []struct {
		what   string
		before poll
		after  poll
		later  time.Duration // of the second poll; 0: a second
		want   string
		grants uint64
	}{
		{"nothing happens", poll{holds(1, "a"), waiting(2, "b")}, poll{holds(1, "a"), waiting(2, "b")}, 0, "", 0},
		{"a new holder", nil, poll{holds(1, "a")}, 0, "granted a", 1},
		{"a new waiter", poll{holds(1, "a")}, poll{holds(1, "a"), waiting(2, "b")}, 0, "queued b", 0},
		{"a hand-off", poll{holds(1, "a"), waiting(2, "b")}, poll{holds(2, "b")}, 0, "released a, granted b", 1},
		{"a release", poll{holds(1, "a")}, nil, 0, "released a", 0},
		{"a lease that ends", poll{holds(1, "a")}, nil, 11 * time.Second, "expired a", 0},
		{"a waiter that gives up", poll{holds(1, "a"), waiting(2, "b")}, poll{holds(1, "a")}, 0, "left b", 0},
		{"a turn that was missed", poll{holds(1, "a"), waiting(2, "b"), waiting(3, "c")}, poll{holds(3, "c")}, 0, "released a, passed b, granted c", 2},
		{"a waiter before it is granted anew", poll{waiting(2, "b")}, poll{holds(2, "b")}, 0, "granted b", 1},
		{"readers", poll{holds(1, "a")}, poll{holds(1, "a"), holds(2, "b")}, 0, "granted b", 1},
		{"foreign locks have no token", poll{holds(0, "foreign")}, poll{holds(0, "foreign")}, 0, "", 0},
		{"an outage is in no rate", nil, poll{holds(1, "a")}, time.Minute, "granted a", 0},
	} {
		r := &record{name: c.what, since: start, at: start, last: c.before}
		d := c.later
		if d == 0 {
			d = time.Second
		}
		r.update(c.after, start.Add(d), d)
		if got := kinds(r.events); got != c.want {
			t.Errorf("%s: events %q, want %q", c.what, got, c.want)
		}
		if r.grants != c.grants {
			t.Errorf("%s: %d grants, want %d", c.what, r.grants, c.grants)
		}
	}
}

func TestBrokenIsToldOnce(t *testing.T) {
	t.Parallel()
	r := &record{at: start, last: []locker.Ticket{holds(1, "a")}, broken: map[key]bool{{1, "a"}: true}}
	r.update(r.last, start.Add(time.Second), time.Second) // the poll began before the break
	r.update(nil, start.Add(2*time.Second), time.Second)
	r.update([]locker.Ticket{holds(5, "a")}, start.Add(3*time.Second), time.Second)
	r.update(nil, start.Add(4*time.Second), time.Second)
	if got, want := kinds(r.events), "broken a, granted a, released a"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	r := &record{at: start}
	for i := range 500 {
		r.update([]locker.Ticket{holds(uint64(i+1), "a")}, start.Add(time.Duration(i)*time.Second), time.Second)
	}
	if n := len(r.events); n != keepEvents {
		t.Errorf("%d events are kept, want %d", n, keepEvents)
	}
	if last := r.events[keepEvents-1]; last.Seq != r.seq || last.Token != "500" {
		t.Errorf("the last event is %+v", last)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	r := &record{at: start}
	token := uint64(0)
	grant := func(after time.Duration) {
		token++
		r.update([]locker.Ticket{holds(token, "a")}, start.Add(after), time.Second)
	}
	grant(0)
	grant(time.Second)
	grant(4 * time.Second)
	rates := r.rates(start.Add(6 * time.Second))
	if got, want := fmt.Sprint(rates[len(rates)-4:]), "[2 0 1 0]"; got != want {
		t.Errorf("rates end with %s, want %s", got, want)
	}
	grant(bucket * numBuckets)
	if got := r.rates(start.Add(bucket * numBuckets)); got[0] != 0 || slices.Max(got) != 1 || got[numBuckets-1] != 1 {
		t.Errorf("after the ring has come round: %v", got)
	}
	if got := r.rates(start.Add(time.Hour)); got != nil {
		t.Errorf("an hour later: %v", got)
	}
}

// absorbed polls s by hand, at a time after start.
func absorbed(s *store, after time.Duration, tickets map[string][]locker.Ticket) *snapshot {
	at := start.Add(after)
	var seen []queues.Reading
	for name, ts := range tickets {
		seen = append(seen, queues.Reading{Queue: locker.Queue{Name: name, Tickets: ts}, At: at})
	}
	s.snapshot = &snapshot{queues: s.absorb(seen, at)}
	return s.snapshot
}

func TestOnlyDifferencesAreSent(t *testing.T) {
	t.Parallel()
	type queues = map[string][]locker.Ticket
	s := newStore(Store{"fake", &fake{}}, time.Second)
	one := absorbed(s, 0, queues{"a": {holds(1, "a")}, "b": {holds(2, "b")}})
	a := holds(1, "a")
	a.Remaining -= time.Second // and a little jitter
	a.Since = a.Since.Add(40 * time.Millisecond)
	b := holds(2, "b") // was renewed: its lease ends a second later
	two := absorbed(s, time.Second+100*time.Millisecond, queues{"a": {a}, "b": {b}})
	if set, gone := two.diff(one); len(set) != 1 || set[0].Name != "b" || len(gone) != 0 {
		t.Errorf("%d queues differ and %v are gone, want b alone", len(set), gone)
	}
	three := absorbed(s, 2*time.Second, queues{"a": {a}})
	if set, gone := three.diff(two); len(set) == 0 || set[len(set)-1].Name != "b" || set[len(set)-1].Free == 0 || len(gone) != 0 {
		t.Errorf("a queue that has become empty: %+v gone %v", set, gone)
	}
	four := absorbed(s, 3*time.Second+showFree, queues{"a": {a}})
	if _, gone := four.diff(three); !slices.Equal(gone, []string{"b"}) {
		t.Errorf("gone %v, want b", gone)
	}
	if h := s.history("b"); len(h.Events) != 1 || h.Queue.Holders != 0 {
		t.Errorf("what is known of b: %+v", h)
	}
	absorbed(s, 3*time.Second+keepFree, nil)
	if h := s.history("b"); h.Watching != 0 {
		t.Error("b is never forgotten")
	}
}

func TestLongQueues(t *testing.T) {
	t.Parallel()
	queue := []locker.Ticket{holds(1, "a")}
	for i := range 1500 {
		queue = append(queue, waiting(uint64(i+2), fmt.Sprint("w", i)))
	}
	s := newStore(Store{"fake", &fake{}}, time.Second)
	v := absorbed(s, 0, map[string][]locker.Ticket{"a": queue}).queues["a"]
	if len(v.Tickets) != maxStreamed || v.Waiters != 1500 || v.Holders != 1 || v.Oldest != start.UnixMilli() {
		t.Errorf("%d tickets, %d waiters, %d holders, oldest %d", len(v.Tickets), v.Waiters, v.Holders, v.Oldest)
	}
	if h := s.history("a"); len(h.Queue.Tickets) != maxInspected || h.More != 501 {
		t.Errorf("the lock's page gets %d tickets and %d more", len(h.Queue.Tickets), h.More)
	}
}

func TestEmptyQueuesAreBounded(t *testing.T) {
	t.Parallel()
	s := newStore(Store{"fake", &fake{}}, time.Second)
	for i := range 10 {
		queues := make(map[string][]locker.Ticket)
		for j := range 500 {
			queues[fmt.Sprint(i, "/", j)] = []locker.Ticket{holds(1, "a")}
		}
		absorbed(s, time.Duration(i)*time.Second, queues)
	}
	if n := len(s.records); n > maxFree+500 {
		t.Errorf("%d queues are remembered, want at most %d empty ones and 500", n, maxFree)
	}
	if ch, _ := s.since(nil); len(ch.Set) > maxFree+500 {
		t.Errorf("%d queues are sent", len(ch.Set))
	}
}
