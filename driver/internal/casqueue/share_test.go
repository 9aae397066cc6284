package casqueue

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A clock that shows no parts of its unit makes no ticket older than it is.
func TestCoarseClock(t *testing.T) {
	for i := range 28 {
		bubble(t, func(b *bed) {
			b.coarse = 1400 * time.Millisecond
			b.setClock("fake", time.Duration(i)*50*time.Millisecond)
			e, _ := b.open()
			r := request("a", "holder")
			r.TTL = 5 * time.Second
			b.take(e, r)
			b.visit(request("a", "first"))
			time.Sleep(5300 * time.Millisecond)
			if b.visit(request("a", "second")) {
				b.Error("granted after 5.3 s, want it after the TTL and the margin for clocks at the earliest")
			}
		})
	}
}

// A ticket that its process has abandoned, and not yet removed, is silent, but the heartbeat of its process is not: what
// is told of it must not make the other tickets of that process older than they are.
func TestAbandonedBesideHeld(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "holder")
		r.TTL = 2 * time.Second
		b.take(e, r)
		visitor, _ := b.open()
		try := func(id string) {
			b.Helper()
			if _, err := visitor.Acquire(b.Context(), request("a", id)); !errors.Is(err, driver.ErrNotAcquired) {
				b.Errorf("beside a holder that renews: %v", err)
			}
		}
		defer b.renews(e, r, r.TTL/3, time.Now().Add(10*time.Second))()
		try("first")
		_ = b.waitsFor(e, request("a", "abandoned"), 3500*time.Millisecond)
		time.Sleep(10 * time.Millisecond) // it has told what it observed
		try("second")
	})
}

// A heartbeat that came while the clock was read was not there before.
func TestHeartbeatDuringReading(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "holder")
		b.take(e, r)
		b.renew(e, r)
		visitor, p := b.open()
		p.with(func(verb, _ string) fault {
			if verb == "time" {
				return stands
			}
			return fine
		})
		var visits sync.WaitGroup
		visits.Go(func() { _, _ = visitor.Acquire(b.Context(), request("a", "slow")) })
		time.Sleep(7 * time.Second)
		b.renew(e, r)
		b.queue(visitor, "a") // sees the heartbeat
		visits.Wait()
		time.Sleep(5 * time.Second)
		if b.visit(request("a", "next")) {
			b.Error("granted 5.5 s after a renewal for 10 s")
		}
	})
}

// What was observed after a visitor has read the clock confirms nothing that it saw before.
func TestObservedAfterReading(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "holder")
		b.take(e, r)
		b.renew(e, r)
		visitor, p := b.open()
		b.queue(visitor, "a")
		now, err := p.Time(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		read := time.Now()
		time.Sleep(7 * time.Second) // for as long as the reading of other heartbeats takes
		b.renew(e, r)
		b.visit(request("a", "second")) // observes that renewal
		b.queue(visitor, "a")           // sees both
		visitor.recallAll(visitor.fileOf(visitor.key("a")), now, read)
		time.Sleep(4 * time.Second)
		if _, err := visitor.Acquire(b.Context(), request("a", "next")); !errors.Is(err, driver.ErrNotAcquired) {
			b.Errorf("4 s after a renewal for 10 s: %v", err)
		}
		b.renew(e, r)
	})
}

// The readings of two clocks are not compared: one that is an hour ahead takes over, and later the first one again.
func TestAnotherClock(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "holder"))
		_ = e.Close()
		b.visit(request("a", "first"))
		time.Sleep(9 * time.Second)
		b.setClock("other", time.Hour)
		if b.visit(request("a", "second")) {
			b.Error("granted because the clock of another server is ahead")
		}
		if took := b.visits(time.Second, func(r driver.Request) bool { return b.visit(r) }); took < 10*time.Second || took > 13*time.Second {
			b.Errorf("granted %v after the other server took over", took)
		}
	})
}

// Without a clock each process observes for itself, and nothing is written for others.
func TestNoClock(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open(timeless)
		b.take(e, request("a", "holder"))
		_ = e.Close()
		writes := b.count("put")
		for i := range 30 {
			if b.visit(request("a", fmt.Sprint("try", i)), timeless) {
				b.Fatal("granted")
			}
			time.Sleep(time.Second)
		}
		if n := b.count("put") - writes; n > 0 {
			b.Errorf("%d writes", n)
		}
	})
}

// A clock that cannot be read fails no request.
func TestClockFails(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "holder")
		r.MinHold = time.Second
		b.take(e, r)
		b.visit(request("a", "sees"))
		b.setClock("", 0)
		other, _ := b.open()
		if ids := b.queue(other, "a"); len(ids) != 1 {
			b.Errorf("queue %q", ids)
		}
		if b.visit(request("a", "try")) {
			b.Error("granted")
		}
		if ids := b.queue(e, "a"); len(ids) != 1 {
			b.Errorf("queue %q", ids)
		}
		if err := e.Shorten(b.Context(), r.Hold(0), time.Second); err != nil {
			b.Error(err)
		}
	})
}

// The observations in a document leave it with their tickets, and a queue that is full refuses them.
func TestObservationsEnd(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "holder")
		b.take(e, r)
		b.visit(request("a", "try"))
		if text := b.text("a"); strings.Count(text, `"fake"`) != 1 {
			b.Errorf("one ticket was observed, the document is %s", text)
		}
		if err := e.Release(b.Context(), r.Hold(0)); err != nil {
			b.Fatal(err)
		}
		if text := b.text("a"); strings.Contains(text, `"fake"`) {
			b.Errorf("nothing is observed, the document is %s", text)
		}
	})
}

// A job that ends within its minimum hold does not keep its name for longer, although its processes come once in a
// period, and none earlier. So it is if it dies just after its grant.
func TestPeriodicJob(t *testing.T) {
	const hold, period, work = 15 * time.Second, 20 * time.Second, 200 * time.Millisecond
	for name, visited := range map[string]bool{"ends": true, "ends unseen": false, "dies": false} {
		dies := name == "dies"
		bubble(t, func(b *bed) {
			b.coarse = time.Second
			for i := range 7 {
				next := time.Now().Add(period)
				e, _ := b.open()
				r := request("a", fmt.Sprint("job", i))
				r.TTL, r.MinHold = hold, hold
				if _, err := e.Acquire(b.Context(), r); err != nil {
					b.Fatalf("period %d of a job that %s: %v", i, name, err)
				}
				granted := time.Now()
				time.Sleep(work)
				if !dies {
					if err := e.Shorten(b.Context(), r.Hold(0), hold-work); err != nil {
						b.Fatal(err)
					}
				}
				_ = e.Close()
				for n := 0; visited && time.Since(granted) < hold; n++ {
					if b.visit(request("a", fmt.Sprint("early", i, n))) {
						b.Fatalf("granted %v after a grant with a minimum hold of %v", time.Since(granted), hold)
					}
					time.Sleep(hold / 5)
				}
				time.Sleep(time.Until(next))
			}
		})
	}
}

// Shorten ends a lease sooner for those who wait, too, and refuses what is not held.
func TestShorten(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "1")
		r.TTL, r.MinHold = time.Minute, time.Minute
		b.take(e, r)
		w := request("a", "2")
		other, _ := b.open()
		got := b.waits(other, w)
		for what, h := range map[string]driver.Hold{"of another process": w.Hold(0), "unknown": {Name: "a", ID: "3"}, "of another name": {Name: "b", ID: "1"}} {
			if err := e.Shorten(b.Context(), h, time.Second); !errors.Is(err, driver.ErrLost) {
				b.Errorf("%s: %v", what, err)
			}
		}
		if err := other.Shorten(b.Context(), r.Hold(0), time.Second); !errors.Is(err, driver.ErrLost) {
			b.Errorf("by another process: %v", err)
		}
		b.take(other, request("c", "6"))
		b.waits(e, request("c", "7")) // its heartbeats do not lengthen the lease
		const d = 3 * time.Second
		begun := time.Now()
		if err := e.Shorten(b.Context(), r.Hold(0), d); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		if took, bound := time.Since(begun), e.Bounds(d).Crash; took < d || took > bound {
			b.Errorf("granted after %v, want %v to %v", took, d, bound)
		}
		own := b.waits(e, request("a", "4"))
		if err := other.Release(b.Context(), w.Hold(0)); err != nil {
			b.Fatal(err)
		}
		if err := <-own; err != nil {
			b.Fatal(err)
		}
		last := request("a", "5")
		b.waits(e, last) // by the process that holds, and does not any more
		if err := e.Shorten(b.Context(), driver.Hold{Name: "a", ID: "4"}, d); err != nil {
			b.Fatal(err)
		}
		time.Sleep(e.Bounds(d).Crash)
		if ids := b.queue(e, "a"); len(ids) != 1 || ids[0] != last.ID {
			b.Errorf("queue %q, want the next waiter of the same process alone", ids)
		}
	})
}

// A renewal that is written together with the end of a minimum hold, or after it, does not lengthen that again.
func TestRenewalBesideShorten(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Millisecond, 70 * time.Millisecond} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			r := request("a", "1")
			r.TTL, r.MinHold = time.Minute, time.Minute
			b.take(e, r)
			p.with(func(verb, _ string) fault { return map[string]fault{"put": slow}[verb] })
			var calls sync.WaitGroup
			next := request("a", "2")
			next.Wait = true
			calls.Go(func() {
				if _, err := e.Acquire(b.Context(), next); err != nil {
					b.Error(err)
				}
			})
			time.Sleep(time.Millisecond) // while that is written, the rest waits
			calls.Go(func() {
				if err := e.Shorten(b.Context(), r.Hold(0), time.Second); err != nil {
					b.Error(err)
				}
			})
			time.Sleep(after)
			calls.Go(func() { _ = e.Renew(b.Context(), r.Hold(0), 2*time.Minute) })
			begun := time.Now()
			calls.Wait()
			if took, bound := time.Since(begun), e.Bounds(time.Second).Crash; took > bound {
				b.Errorf("the next was granted after %v, want at most %v", took, bound)
			}
		})
	}
}

// Shorten of a ticket that was removed, or whose lease is over, is ErrLost, and leaves no ticket.
func TestShortenAfterLoss(t *testing.T) {
	for _, removed := range []bool{false, true} {
		bubble(t, func(b *bed) {
			other, _ := b.open()
			e, p := b.open()
			r := request("a", "1")
			r.MinHold = r.TTL
			g := b.take(e, r)
			if removed {
				if err := other.Break(b.Context(), "a", g.Token); err != nil {
					b.Fatal(err)
				}
			} else {
				p.with(func(string, string) fault { return notDone })
				time.Sleep(r.TTL + time.Second)
				p.with(nil)
			}
			if err := e.Shorten(b.Context(), r.Hold(g.Token), time.Minute); !errors.Is(err, driver.ErrLost) {
				b.Errorf("shorten: %v (removed: %v)", err, removed)
			}
			if ids := b.stored("a"); len(ids) != 0 {
				b.Errorf("queue %q (removed: %v)", ids, removed)
			}
		})
	}
}

// A Shorten that waits behind a slow write ends the lease no sooner than after what was left when it was called.
func TestShortenBehindASlowWrite(t *testing.T) {
	for _, slow := range []fault{stands, silent} {
		bubble(t, func(b *bed) {
			const hold = 15 * time.Second
			e, p := b.open()
			r := request("a", "1")
			r.TTL, r.MinHold = hold, hold
			b.take(e, r)
			granted, first := time.Now(), true
			p.with(func(verb, _ string) fault {
				if verb == "put" && first {
					first = false
					return slow
				}
				return fine
			})
			go func() { _, _ = e.Acquire(b.Context(), request("a", "2")) }()
			next := request("a", "3")
			next.Wait = true
			go func() { _, _ = e.Acquire(b.Context(), next) }()
			time.Sleep(time.Millisecond)
			_ = e.Shorten(b.Context(), r.Hold(0), hold-time.Since(granted))
			_ = e.Close()
			for i := 0; time.Since(granted) < hold; i++ {
				if b.visit(request("a", fmt.Sprint("early", i))) {
					b.Fatalf("granted after %v", time.Since(granted))
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
}

// What others have observed counts by the clock by which they did, of the record and the heartbeat as they are now, and
// makes neither younger.
func TestRecall(t *testing.T) {
	const at = time.Hour // what the clock shows
	for _, c := range []struct {
		present, observed, read string // clocks
		shown                   string // the heartbeat that others have observed
		ago                     time.Duration
		fixed                   bool
		record, heartbeat       time.Duration // for how long they have not changed
	}{
		{"a", "a", "a", "new", 10 * time.Second, false, 10 * time.Second, 10 * time.Second},
		{"", "a", "a", "new", 10 * time.Second, false, 10 * time.Second, 10 * time.Second},
		{"a", "a", "a", "", 10 * time.Second, true, 10 * time.Second, time.Second},
		{"a", "a", "a", "new", 500 * time.Millisecond, false, time.Second, time.Second},
		{"a", "a", "a", "old", 10 * time.Second, false, time.Second, time.Second},
		{"b", "b", "a", "new", 10 * time.Second, false, time.Second, time.Second},
		{"b", "a", "a", "new", 10 * time.Second, false, time.Second, time.Second},
	} {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			now := time.Now()
			seen := &sighting{content: "new", since: now.Add(-time.Second)}
			r := &record{ID: "1", Process: "p", seen: seen.since, Observed: &observation{c.observed, at - c.ago, c.shown}}
			if c.fixed {
				r.hold(time.Minute, true)
				r.seen, r.Observed = seen.since, &observation{c.observed, at - c.ago, c.shown}
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			e.clock, e.heartbeats["p"] = c.present, seen
			e.recall(r, Time{c.read, at, at}, now)
			if now.Sub(r.seen) != c.record || now.Sub(seen.since) != c.heartbeat {
				b.Errorf("%+v: the record has stood for %v, and the heartbeat for %v", c, now.Sub(r.seen), now.Sub(seen.since))
			}
		})
	}
}

// Nothing is told of a record that was read and not looked at yet: nobody knows since when it has been there.
func TestTellsOnlyWhatItSaw(t *testing.T) {
	for _, saw := range []bool{true, false} {
		bubble(t, func(b *bed) {
			holder, _ := b.open()
			b.take(holder, request("a", "1"))
			e, p := b.open()
			e.mu.Lock()
			f := e.fileOf(e.key("a"))
			e.mu.Unlock()
			if err := e.read(b.Context(), f); err != nil {
				b.Fatal(err)
			}
			time.Sleep(time.Second)
			e.mu.Lock()
			if !saw {
				f.doc.Queues[0].Tickets[0].seen = time.Time{}
			}
			e.mu.Unlock()
			if err := e.tell(b.Context(), p, f); err != nil {
				b.Fatal(err)
			}
			if told := strings.Contains(b.text("a"), `"b":`); told != saw {
				b.Errorf("seen %t, told %t: %s", saw, told, b.text("a"))
			}
		})
	}
}

// A process vouches for the first lease of a ticket only: one that began after the clock was read was not there then.
func TestVouchesForFirstLease(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			r := request("a", "1")
			r.TTL = 10 * time.Second
			g := b.take(e, r)
			e.mu.Lock()
			mine := e.tickets["1"]
			e.mu.Unlock()
			p.with(func(verb, _ string) fault {
				if verb == "time" && renewed {
					if err := e.Renew(b.Context(), r.Hold(g.Token), 2*r.TTL); err != nil {
						b.Error(err)
					}
				}
				return fine
			})
			if err := e.vouch(b.Context(), mine); err != nil {
				b.Fatal(err)
			}
			if told := strings.Contains(b.text("a"), `"b":`); told == renewed {
				b.Errorf("renewed %t, vouched for %t: %s", renewed, told, b.text("a"))
			}
		})
	}
}
