package casqueue

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A new observer has to observe for the whole life of a ticket, even if there was no sign of life before.
func TestNewObserver(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "1"))
		_ = e.Close() // as if it had died
		time.Sleep(9 * time.Second)
		other, _ := b.open()
		begun := time.Now()
		if err := <-b.waits(other, request("a", "2")); err != nil {
			b.Fatal(err)
		}
		took := time.Since(begun)
		const least = 10600 * time.Millisecond // the life, and the margin for clocks that do not run equally fast
		if bound := other.Bounds(10 * time.Second).Crash; took < least || took > bound {
			b.Errorf("granted after %v, want %v to %v", took, least, bound)
		}
	})
}

// An observer removes a ticket only from the document that it has read: a lease that is begun anew while the removal
// is on its way keeps the ticket. The observer's clock runs too fast here.
func TestConclusionIsChecked(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "1")
		r.Renewed = false
		g := b.take(e, r)
		other, p := b.open()
		got := b.waits(other, request("a", "2"))
		var renewed atomic.Bool
		p.with(func(verb, _ string) fault {
			if verb == "put" && !renewed.Swap(true) {
				if err := e.Renew(b.Context(), r.Hold(g.Token), 10*time.Second); err != nil {
					b.Error(err)
				}
			}
			return fine
		})
		other.mu.Lock()
		f := other.files[other.key("a")]
		holder := &f.doc.find("a").Tickets[0]
		holder.seen = holder.seen.Add(-time.Hour)
		other.mu.Unlock()
		time.Sleep(5 * time.Second)
		if ids := b.queue(other, "a"); !renewed.Load() || !slices.Equal(ids, []string{"1", "2"}) {
			b.Errorf("queue %q (removal tried: %v)", ids, renewed.Load())
		}
		if err := <-got; err != nil {
			b.Fatal(err)
		}
	})
}

// Inspect removes expired tickets: a ticket that it did not show does not come back.
func TestInspectRemoves(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		g := b.take(e, request("a", "1"))
		other, _ := b.open()
		for begun := time.Now(); len(b.queue(other, "a")) > 0; time.Sleep(200 * time.Millisecond) {
			if time.Since(begun) > other.Bounds(10*time.Second).Crash {
				b.Fatal("a ticket without a sign of life is shown")
			}
		}
		if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}, 10*time.Second); !errors.Is(err, driver.ErrLost) {
			b.Errorf("renewal of what was not shown: %v", err)
		}
		if ids := b.queue(other, "a"); len(ids) > 0 {
			b.Errorf("queue %q: it has come back", ids)
		}
	})
}

// If a holder dies right after a renewal, the waiter is granted in time, whenever that is between two of its samples.
func TestCrashBound(t *testing.T) {
	const ttl = 9500 * time.Millisecond
	for i := range 10 {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			r := request("a", "1")
			r.TTL = ttl
			g := b.take(e, r)
			other, _ := b.open()
			got := b.waits(other, request("a", "2"))
			time.Sleep(3*time.Second + time.Duration(i)*100*time.Millisecond + 10*time.Millisecond)
			begun := time.Now()
			if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}, ttl); err != nil {
				b.Fatal(err)
			}
			_ = e.Close()
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			if took, bound := time.Since(begun), other.Bounds(ttl).Crash; took < ttl || took > bound {
				b.Errorf("granted %v after the last renewal, want %v to %v", took, ttl, bound)
			}
		})
	}
}

// A heartbeat that did not change before a ticket was queued says nothing about that ticket: its process had no
// reason to send any.
func TestOldSighting(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		slow := request("slow", "1")
		slow.TTL = time.Hour
		b.take(e, slow)
		b.queue(other, "slow")
		b.queue(other, "slow") // its process is known now
		time.Sleep(10 * time.Second)
		b.queue(other, "slow") // and has not changed its heartbeat

		fast := request("fast", "2")
		fast.TTL = 2 * time.Second
		g := b.take(e, fast)
		for range 4 {
			if _, err := other.Acquire(b.Context(), request("fast", "3")); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
				b.Fatalf("beside a holder that renews: %v", err)
			}
			for range 3 {
				time.Sleep(time.Second)
				if err := e.Renew(b.Context(), fast.Hold(g.Token), fast.TTL); err != nil {
					b.Fatalf("renewal in time: %v", err)
				}
			}
		}
	})
}

// What was seen of a record is kept for that record in newer documents, whatever leaves the queue or is queued, and for
// no other: a ticket whose lease was begun anew, or that was removed and queued again, has shown that it lives.
func TestSightingOfOneTicket(t *testing.T) {
	read := func(records ...record) *document {
		return &document{Queues: []*queue{{Name: "other"}, {Name: "a", Tickets: records}}}
	}
	at := time.Now()
	old := read(record{ID: "0", Token: 3}, record{ID: "1", Token: 5, Lease: 1}, record{ID: "2", Token: 7, Lease: 1}, record{ID: "3", Token: 8})
	old.see(at)
	d := read(record{ID: "1", Token: 5, Lease: 1}, record{ID: "2", Token: 7, Lease: 2}, record{ID: "3", Token: 9}, record{ID: "4", Token: 10})
	d.carry(old)
	d.see(at.Add(time.Hour))
	e := New(Options{})
	defer func() { _ = e.Close() }()
	for i, want := range []time.Time{at, at.Add(time.Hour), at.Add(time.Hour), at.Add(time.Hour)} {
		r := &d.find("a").Tickets[i]
		if !r.seen.Equal(want) {
			t.Errorf("ticket %s is seen as it is since %v, want %v", r.ID, r.seen, want)
		}
		if r.hold(time.Second, true); e.expired(r, at.Add(2*time.Hour)) {
			t.Errorf("ticket %s is dead, though its lease has just begun anew", r.ID)
		}
	}
}

// A process that tries again and again finds out that a holder has died, although it never waits. Waiters that died
// behind the holder do not stay either. The store need not forget documents.
func TestTriesObserve(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "1"))
		behind, _ := b.open()
		b.waits(behind, request("a", "2"))
		other, _ := b.open()
		_ = e.Close()
		_ = behind.Close()
		begun := time.Now()
		for i := 0; ; i++ {
			_, err := other.Acquire(b.Context(), request("a", fmt.Sprint("try", i)))
			if err == nil {
				break
			}
			if took := time.Since(begun); !errors.Is(err, driver.ErrNotAcquired) || took > 20*time.Second {
				b.Fatalf("%v after the holder has died: %v", took, err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if took, bound := time.Since(begun), other.Bounds(10*time.Second).Crash+500*time.Millisecond; took < 10*time.Second || took > bound {
			b.Errorf("granted after %v, want 10s to %v", took, bound)
		}
	})
}

// A process that was stopped for minutes comes back: what it held and waited for is lost, and what it had begun to
// write changes nothing.
func TestStoppedProcess(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		other, _ := b.open()
		long := func(name, id string) driver.Request {
			r := request(name, id)
			r.TTL = time.Hour
			return r
		}
		held := request("held", "1")
		g := b.take(e, held)
		b.take(other, long("waited", "2"))
		waiter := b.waits(e, request("waited", "3"))
		back := time.Now().Add(2 * time.Minute)
		p.with(func(string, string) fault {
			time.Sleep(time.Until(back))
			return fine
		})
		renewal, release := make(chan error, 1), make(chan error, 1)
		go func() { renewal <- e.Renew(b.Context(), held.Hold(g.Token), held.TTL) }()
		go func() { release <- e.Release(b.Context(), driver.Hold{Name: "waited", ID: "2"}) }() // anybody's, by its ID

		for _, next := range []driver.Request{long("held", "4"), long("waited", "5")} {
			got := b.waits(other, next)
			if next.Name == "waited" {
				if err := other.Release(b.Context(), driver.Hold{Name: "waited", ID: "2"}); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			if err := other.Renew(b.Context(), next.Hold(0), next.TTL); err != nil {
				b.Fatal(err)
			}
		}
		if !time.Now().Before(back) {
			b.Fatal("nobody was granted while the process was stopped")
		}
		for what, err := range map[string]error{"renewal": <-renewal, "wait": <-waiter, "release": <-release} {
			if !errors.Is(err, driver.ErrLost) {
				b.Errorf("%s of a process that was stopped: %v", what, err)
			}
		}
		if held, waited := b.stored("held"), b.stored("waited"); !slices.Equal(held, []string{"4"}) || !slices.Equal(waited, []string{"5"}) {
			b.Errorf("the queues are %q and %q", held, waited)
		}
	})
}

// A reading of a heartbeat says nothing about a ticket that was written after it. Here a process that was taken for
// dead holds again and sends heartbeats, which the other process has not read since.
func TestOldReadingOfHeartbeat(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		x, _ := b.open()
		short := func(id string) driver.Request {
			r := request("a", id)
			r.TTL = e.minTTL()
			return r
		}
		b.take(e, short("1"))
		if err := <-b.waits(x, short("2")); err != nil { // when it has taken e for dead
			b.Fatal(err)
		}
		if err := x.Release(b.Context(), driver.Hold{Name: "a", ID: "2"}); err != nil {
			b.Fatal(err)
		}
		g := b.take(e, short("3"))
		for range 10 {
			if _, err := x.Acquire(b.Context(), short("4")); !errors.Is(err, driver.ErrNotAcquired) {
				b.Fatalf("while another holds: %v", err)
			}
			time.Sleep(e.minTTL() / 4)
			if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "3", Token: g.Token}, e.minTTL()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A ticket that was removed and queued again, because its request was repeated, is another ticket to a process that
// did not observe it meanwhile.
func TestTicketIsQueuedAgain(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		x, _ := b.open()
		b.take(e, request("b", "0")) // x reads the heartbeat of e for this
		b.waits(x, request("b", "1"))
		short := request("a", "2")
		short.TTL = e.minTTL()
		h := driver.Hold{Name: "a", ID: "2", Token: b.take(e, short).Token}
		try := request("a", "3")
		if _, err := x.Acquire(b.Context(), try); !errors.Is(err, driver.ErrNotAcquired) {
			b.Fatalf("while another holds: %v", err)
		}
		time.Sleep(2 * e.minTTL())
		if err := e.Release(b.Context(), h); err != nil {
			b.Fatal(err)
		}
		b.take(e, short)
		if _, err := x.Acquire(b.Context(), try); !errors.Is(err, driver.ErrNotAcquired) {
			b.Errorf("while another holds again: %v", err)
		}
	})
}
