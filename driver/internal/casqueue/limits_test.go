package casqueue

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A lease of any length lasts, even the longest possible.
func TestLongestLease(t *testing.T) {
	for _, ttl := range []time.Duration{math.MaxInt64, math.MaxInt64 - math.MaxInt64/50, 200 * 365 * 24 * time.Hour} {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			r := request("a", "1")
			r.TTL = ttl
			g := b.take(e, r)
			if given := min(ttl, 100*365*24*time.Hour); e.Bounds(ttl).Crash < given || g.TTL != 0 && g.TTL < given {
				b.Errorf("a lease of %v: given for %v, with bounds %+v", ttl, g.TTL, e.Bounds(ttl))
			}
			other, _ := b.open()
			got := b.waits(other, request("a", "2"))
			select {
			case err := <-got:
				b.Errorf("a lease of %v: granted beside it (%v)", ttl, err)
			case <-time.After(2 * time.Minute):
			}
			if err := e.Renew(b.Context(), r.Hold(g.Token), ttl); err != nil {
				b.Errorf("a lease of %v: renewal: %v", ttl, err)
			}
		})
	}
}

// It is no sign of life that the store forgets the heartbeat of a process that has died. So a lease ends within the
// bound, even if it is longer than the store keeps the heartbeat.
func TestHeartbeatIsForgotten(t *testing.T) {
	const ttl = 2 * time.Minute
	for _, waited := range []bool{false, true} {
		bubble(t, func(b *bed) {
			busy, _ := b.open()
			r := request("busy", "0")
			r.TTL, r.Renewed = time.Hour, false
			b.take(busy, r)
			e, _ := b.open()
			b.waits(e, request("busy", "1"))
			time.Sleep(1500 * time.Millisecond)
			r = request("a", "2")
			r.TTL = ttl
			if waited {
				b.take(busy, request("a", "3"))
				got := b.waits(e, r)
				if err := busy.Release(b.Context(), driver.Hold{Name: "a", ID: "3"}); err != nil {
					b.Fatal(err)
				}
				if err := <-got; err != nil {
					b.Fatal(err)
				}
				if err := e.Renew(b.Context(), r.Hold(0), ttl); err != nil {
					b.Fatal(err)
				}
			} else {
				b.take(e, r)
			}
			if took, bound := b.ended(e, "a"), e.Bounds(ttl).Crash; took < ttl || took > bound {
				b.Errorf("the lease (waited for: %v) ended after %v, want at most %v", waited, took, bound)
			}
		})
	}
}

// A process that uses one name does not remember for ever all other processes that have used it.
func TestForgetsProcesses(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		for i := range 30 {
			other, _ := b.open()
			r := request("a", fmt.Sprint(i))
			g := b.take(other, r)
			for range 3 {
				if _, err := e.Acquire(b.Context(), request("a", fmt.Sprint("try", i))); !errors.Is(err, driver.ErrNotAcquired) {
					b.Fatal(err)
				}
			}
			if err := other.Release(b.Context(), r.Hold(g.Token)); err != nil {
				b.Fatal(err)
			}
			_ = other.Close()
			time.Sleep(time.Minute)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if n := len(e.heartbeats); n > 8 {
			b.Errorf("it remembers %d processes", n)
		}
	})
}

// A process that goes on using a name does not read its queue again.
func TestUsedIsNotForgotten(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		for i := range 60 {
			r := request("a", fmt.Sprint(i))
			g := b.take(e, r)
			if err := e.Release(b.Context(), r.Hold(g.Token)); err != nil {
				b.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if n := b.count("get"); n != 1 {
			b.Errorf("%d readings, want the first", n)
		}
	})
}

// A process that observes a lease only now and then sees that it is renewed, even if that is seldom.
func TestRareObserver(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "1")
		r.TTL = 30 * time.Minute
		b.take(e, r)
		other, _ := b.open()
		for i := range 60 {
			time.Sleep(2 * time.Minute)
			if _, err := other.Acquire(b.Context(), request("a", fmt.Sprint("try", i))); !errors.Is(err, driver.ErrNotAcquired) {
				b.Fatalf("beside a holder that renews: %v", err)
			}
			if i%5 == 3 {
				w := request("a", fmt.Sprint("w", i)) // so that the document was just written, and the renewal need not write it
				b.waits(e, w)
				if err := e.Release(b.Context(), w.Hold(0)); err != nil {
					b.Fatal(err)
				}
				if err := e.Renew(b.Context(), r.Hold(0), r.TTL); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
