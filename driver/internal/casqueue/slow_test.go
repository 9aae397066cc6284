package casqueue

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A process that waits rests for longer than the store takes to answer, so that many do not overload a slow store.
func TestPollsOfSlowStore(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, p := b.open()
		r := request("a", "1")
		r.TTL = time.Hour
		b.take(e, r)
		got := b.waits(other, request("a", "2"))
		p.with(func(_, _ string) fault { return slow })
		time.Sleep(5 * time.Second)
		gets := b.count("get")
		const d = 10 * time.Second
		time.Sleep(d)
		n := b.count("get") - gets
		if want := int(d / (restPart * 50 * time.Millisecond)); n > want+15 || n < want-15 {
			b.Errorf("%d readings in %v, of 50 ms each: want about %d", n, d, want)
		}
		begun := time.Now()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > 400*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
	})
}

// Processes that change the same document pause longer if the store takes longer, so that few of their writes
// conflict.
func TestConflictsOfSlowStore(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "holder")
		r.TTL = time.Hour
		b.take(holder, r)
		const n = 16
		puts := b.count("put")
		for i := range n {
			e, p := b.open()
			p.with(func(_, _ string) fault { return slow })
			go func() {
				_, _ = e.Acquire(b.Context(), driver.Request{Name: "a", ID: fmt.Sprint(i), TTL: time.Hour, Wait: true})
			}()
		}
		for len(b.stored("a")) < n+1 {
			time.Sleep(10 * time.Millisecond)
		}
		if got := b.count("put") - puts; got > 5*n+n/2 {
			b.Errorf("%d writes for %d tickets", got, n)
		}
	})
}

// The stated bounds follow from the latency that the driver states.
func TestLatency(t *testing.T) {
	for latency, want := range map[time.Duration]driver.Bounds{
		0:                      {MinTTL: time.Second, MaxTTL: century, Crash: 12 * time.Second, Liveness: 7700 * time.Millisecond},
		250 * time.Millisecond: {MinTTL: 2500 * time.Millisecond, MaxTTL: century, Crash: 12600 * time.Millisecond, Liveness: 8300 * time.Millisecond},
	} {
		e := New(Options{Latency: latency})
		if got := e.Bounds(10 * time.Second); got != want {
			t.Errorf("latency %v: %+v, want %+v", latency, got, want)
		}
		if got := e.lease(time.Millisecond); got != want.MinTTL {
			t.Errorf("latency %v: a lease of %v, want %v", latency, got, want.MinTTL)
		}
		_ = e.Close()
	}
}
