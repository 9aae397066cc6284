package casqueue

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A queue whose holders release at once moves as fast as the next waiter polls: the processes behind it read the queue
// before it is their turn, and seldom before.
func TestPaceOfQueue(t *testing.T) {
	bubble(t, func(b *bed) {
		const clients, grants = 16, 1000
		var done, polls, requests atomic.Int64
		var group sync.WaitGroup
		begun := time.Now()
		for c := range clients {
			e, p := b.open()
			p.with(func(verb, key string) fault {
				if verb == "get" && strings.Contains(key, ":n:") {
					polls.Add(1)
				}
				requests.Add(1)
				time.Sleep(rand.N(time.Millisecond)) //nolint:gosec // no secret
				return fine
			})
			group.Go(func() {
				for i := 0; done.Add(1) <= grants; i++ {
					id := fmt.Sprint(c, "-", i)
					if _, err := e.Acquire(b.Context(), driver.Request{Name: "a", ID: id, TTL: time.Minute, Renewed: true, Wait: true}); err != nil {
						b.Error(err)
						return
					}
					time.Sleep(100 * time.Microsecond)
					if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: id}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		if each := time.Since(begun) / grants; each > 5*time.Millisecond {
			b.Errorf("%v for each grant: want about 3 ms", each)
		}
		// Those behind read the queue when it is time, and the next one all the time.
		if each := float64(polls.Load()) / grants; each > 0.5 {
			b.Errorf("%.2f readings of notifications for each grant", each)
		}
		if each := float64(requests.Load()) / grants; each > 7 {
			b.Errorf("%.2f requests for each grant", each)
		}
	})
}

// readings returns how often a process reads the queue of a name in ten seconds, after two.
func (b *bed) readings(p *process, name string) (n int) {
	time.Sleep(2 * time.Second)
	var read atomic.Int64
	p.mu.Lock()
	decide := p.fault
	p.fault = func(verb, key string) fault {
		if verb == "get" && strings.HasSuffix(key, ":q:"+hash(name)) {
			read.Add(1)
		}
		if decide == nil {
			return fine
		}
		return decide(verb, key)
	}
	p.mu.Unlock()
	time.Sleep(10 * time.Second)
	return int(read.Load())
}

// A queue that does not move is read less and less often, though the readings do not show that it stands: the document
// cannot be read. A small queue is read as often as a notification would be.
func TestPaceOfUnreadableQueue(t *testing.T) {
	for _, r := range []driver.Request{heavy("a", "1"), request("a", "1")} {
		testPaceOfUnreadableQueue(t, r)
	}
}

func testPaceOfUnreadableQueue(t *testing.T, r driver.Request) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r.TTL = time.Hour
		b.take(holder, r)
		second, _ := b.open()
		b.waits(second, request("a", "2"))
		third, p := b.open()
		b.waits(third, request("a", "3"))
		b.mu.Lock()
		b.write("t:q:"+hash("a"), []byte("garbage"), time.Hour)
		b.mu.Unlock()
		want := 25
		if r.Note == "" {
			want = 10 * int(time.Second/othersPoll+1)
		}
		if n := b.readings(p, "a"); n == 0 || n > want {
			b.Errorf("%d readings in 10 s, want %d at most", n, want)
		}
	})
}

// So is the queue of a ticket that is granted, if its lease cannot be written: a store may refuse all writes, and no
// reading.
func TestPaceOfUnwrittenLease(t *testing.T) {
	for _, r := range []driver.Request{heavy("a", "1"), request("a", "1")} {
		testPaceOfUnwrittenLease(t, r)
	}
}

func testPaceOfUnwrittenLease(t *testing.T, r driver.Request) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r.TTL = time.Hour
		g := b.take(holder, r)
		second, _ := b.open()
		third, p := b.open()
		for i, e := range []*Engine{second, third} {
			r := request("a", fmt.Sprint(i+2))
			r.Shared, r.Renewed = true, false // both are granted at once, and their leases are written
			b.waits(e, r)
		}
		p.with(func(verb, _ string) fault {
			if verb == "put" {
				return silent
			}
			return fine
		})
		if err := holder.Release(b.Context(), r.Hold(g.Token)); err != nil {
			b.Fatal(err)
		}
		want := 25
		if r.Note == "" {
			want = 10 * int(time.Second/othersPoll+1)
		}
		if n := b.readings(p, "a"); n == 0 || n > want {
			b.Errorf("%d readings in 10 s, want %d at most", n, want)
		}
	})
}

// However long a long queue stands, it is read once a second.
func TestPaceOfLongWait(t *testing.T) {
	for _, stood := range []time.Duration{0, 10 * time.Second, 60 * 24 * time.Hour, century} {
		now := time.Now()
		for _, hold := range []time.Duration{0, stood} {
			f := &file{doc: &document{Queues: []*queue{{Name: "a", Hold: hold}}}}
			w := &ticket{name: "a", file: f, ahead: 2000, moved: now.Add(-stood)}
			if soon := w.soon(now, 0); soon < leastPoll || stood > 0 && soon < mostSample {
				t.Errorf("2000 waiters ahead, after %v: read again after %v", stood, soon)
			}
		}
	}
}

// The next waiter of a small queue sees the release itself, and needs no notification of it. If it waits for several
// queues, or for a large one, it reads one notification for all, and the queues when there is a new one.
func TestNextReadsQueue(t *testing.T) {
	for _, c := range []struct {
		also, note string
		direct     bool
	}{{"", "", true}, {"other", "", false}, {"", strings.Repeat("x", smallQueue), false}} {
		bubble(t, func(b *bed) {
			holder, hp := b.open()
			r := request("a", "1")
			r.TTL, r.Note = time.Hour, c.note
			g := b.take(holder, r)
			next, p := b.open()
			if c.also != "" {
				also := request(c.also, "2")
				also.TTL = time.Hour
				b.take(holder, also)
				b.waits(next, request(c.also, "3"))
			}
			got := b.waits(next, request("a", "4"))
			if n := b.readings(p, "a"); n > 15 && !c.direct || n < 100 && c.direct {
				b.Errorf("%+.20v: %d readings of queues in 10 s", c, n)
			}
			if c.direct {
				hp.with(func(verb, _ string) fault { return map[string]fault{"set": notDone}[verb] })
			}
			begun := time.Now()
			if err := holder.Release(b.Context(), r.Hold(g.Token)); err != nil {
				b.Fatal(err)
			}
			if err := <-got; err != nil || time.Since(begun) > 60*time.Millisecond {
				b.Errorf("%+.20v: granted %v after the release (%v)", c, time.Since(begun), err)
			}
		})
	}
}

// What a queue says of its holders is about how long each is held, divided by those that are held at once.
func TestHold(t *testing.T) {
	for _, holders := range []int{1, 4} {
		q := &queue{Name: "a"}
		for i := range holders + 3 {
			q.Tickets = append(q.Tickets, record{ID: fmt.Sprint(i), Shared: true, Limit: holders})
		}
		for range 100 {
			q.held(8 * time.Millisecond)
		}
		if want := 8 * time.Millisecond / time.Duration(holders); q.Hold < want*99/100 || q.Hold > want {
			t.Errorf("%d at once, each for 8 ms: %v, want about %v", holders, q.Hold, want)
		}
		q.held(time.Hour)
		for range 50 {
			q.held(8 * time.Millisecond)
		}
		if want := 8 * time.Millisecond / time.Duration(holders); q.Hold < want || q.Hold > want*11/10 {
			t.Errorf("%d at once, one for an hour: %v, want about %v", holders, q.Hold, want)
		}
	}
}

// One long hold of many, or one slow request, does not make those who wait read the queue late for long.
func TestPaceAfterOutlier(t *testing.T) {
	const clients, grants, long = 16, 1000, 200 * time.Millisecond
	for _, c := range []struct {
		name       string
		hold, slow bool
	}{{"hold", true, false}, {"request", false, true}} {
		bubble(t, func(b *bed) {
			var done atomic.Int64
			var group sync.WaitGroup
			begun := time.Now()
			for i := range clients {
				e, p := b.open()
				p.with(func(string, string) fault {
					took := 50*time.Microsecond + rand.N(200*time.Microsecond) //nolint:gosec // no secret
					if c.slow && rand.IntN(50) == 0 {                          //nolint:gosec // no secret
						took = rand.N(20 * time.Millisecond) //nolint:gosec // no secret
					}
					time.Sleep(took)
					return fine
				})
				group.Go(func() {
					for n := done.Add(1); n <= grants; n = done.Add(1) {
						r := request("a", fmt.Sprint(i, "-", n))
						r.Wait = true
						if _, err := e.Acquire(b.Context(), r); err != nil {
							b.Error(err)
							return
						}
						if c.hold && n%20 == 0 {
							time.Sleep(long)
						}
						if err := e.Release(b.Context(), r.Hold(0)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			took := time.Since(begun)
			if c.hold {
				took -= grants / 20 * long
			}
			if each := took / grants; each > 3*time.Millisecond { // besides the long holds
				b.Errorf("a long %s now and then: %v for each grant, want about 2 ms", c.name, each)
			}
		})
	}
}
