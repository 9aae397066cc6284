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
// before it is their turn, though they have seen it move more slowly.
func TestPaceOfQueue(t *testing.T) {
	bubble(t, func(b *bed) {
		const clients, grants = 16, 1000
		var done atomic.Int64
		var group sync.WaitGroup
		begun := time.Now()
		for c := range clients {
			e, p := b.open()
			p.with(func(_, _ string) fault {
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
	})
}

// readings returns how often a process reads a queue in ten seconds, after two.
func (b *bed) readings(p *process) (n int) {
	time.Sleep(2 * time.Second)
	var read atomic.Int64
	p.mu.Lock()
	decide := p.fault
	p.fault = func(verb, key string) fault {
		if verb == "get" && strings.Contains(key, ":q:") {
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
// cannot be read.
func TestPaceOfUnreadableQueue(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "1")
		r.TTL = time.Hour
		b.take(holder, r)
		second, _ := b.open()
		b.waits(second, request("a", "2"))
		third, p := b.open()
		b.waits(third, request("a", "3"))
		b.mu.Lock()
		b.write("t:q:"+hash("a"), []byte("garbage"), time.Hour)
		b.mu.Unlock()
		if n := b.readings(p); n == 0 || n > 25 {
			b.Errorf("%d readings in 10 s, want one or two a second", n)
		}
	})
}

// So is the queue of a ticket that is granted, if its lease cannot be written: a store may refuse all writes, and no
// reading.
func TestPaceOfUnwrittenLease(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "1")
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
		if n := b.readings(p); n == 0 || n > 25 {
			b.Errorf("%d readings in 10 s, want one or two a second", n)
		}
	})
}

// However long a long queue stands, it is read once a second.
func TestPaceOfLongWait(t *testing.T) {
	for _, stood := range []time.Duration{0, time.Second, 60 * 24 * time.Hour, century} {
		now := time.Now()
		for _, w := range []*ticket{{ahead: 2000, interval: stood, moved: now}, {ahead: 2000, interval: firstInterval, moved: now.Add(-stood)}} {
			if soon := w.soon(now); soon < leastPoll || stood >= time.Second && soon < mostSample {
				t.Errorf("2000 waiters ahead, after %v: read again after %v", stood, soon)
			}
		}
	}
}
