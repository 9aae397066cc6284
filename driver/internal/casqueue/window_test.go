package casqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// The expired waiters of a queue leave it together, however many there are, even with live waiters between them.
func TestDeadWaiters(t *testing.T) {
	for _, queue := range []string{
		"ddddd",
		strings.Repeat("d", 40),
		strings.Repeat("d", 2*window) + "l" + strings.Repeat("d", window-1) + "l" + strings.Repeat("d", window),
	} {
		bubble(t, func(b *bed) {
			holder, _ := b.open()
			r := request("a", "holder")
			r.TTL = time.Hour
			b.take(holder, r)
			var dead []*Engine
			for i, what := range queue {
				e, _ := b.open()
				got := b.waits(e, request("a", fmt.Sprint(i)))
				if what == 'd' {
					dead = append(dead, e)
					continue
				}
				go func() {
					if err := <-got; err == nil {
						_ = e.Release(b.Context(), driver.Hold{Name: "a", ID: fmt.Sprint(i)})
					}
				}()
			}
			live, _ := b.open()
			got := b.waits(live, request("a", "live"))
			time.Sleep(20 * time.Second)
			if ids := b.stored("a"); len(ids) != len(queue)+2 {
				b.Fatalf("queue %q while all live", ids)
			}
			begun := time.Now()
			for _, e := range dead {
				_ = e.Close()
			}
			if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "holder"}); err != nil {
				b.Fatal(err)
			}
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			if took, bound := time.Since(begun), live.Bounds(10*time.Second).Liveness; took > bound {
				b.Errorf("%s: the dead delayed the queue by %v, want at most %v", queue, took, bound)
			}
		})
	}
}

// Each ticket is watched by some process, even if all processes behind it have a second ticket further behind.
func TestEachTicketIsWatched(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "0")
		r.Renewed, r.TTL = false, time.Hour
		b.take(holder, r)
		dies, _ := b.open()
		b.waits(dies, request("a", "dies"))
		var es []*Engine
		for range window + 2 {
			e, _ := b.open()
			es = append(es, e)
		}
		for i := range 2 * len(es) {
			b.waits(es[i%len(es)], request("a", fmt.Sprint("live", i)))
		}
		time.Sleep(10 * time.Second)
		if ids := b.stored("a"); !slices.Contains(ids, "dies") {
			b.Fatalf("queue %q while all live", ids)
		}
		_ = dies.Close()
		time.Sleep(dies.Bounds(10 * time.Second).Liveness)
		if ids := b.stored("a"); slices.Contains(ids, "dies") || len(ids) != 1+2*len(es) {
			b.Errorf("queue %q when one of them was dead for long", ids)
		}
	})
}

// In a long queue each process reads the heartbeats of some others, not of all.
func TestWindow(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "holder")
		r.Renewed, r.TTL = false, time.Hour
		b.take(holder, r)
		const n = 40
		var ps []*process
		for i := range n {
			e, p := b.open()
			ps = append(ps, p)
			b.waits(e, request("a", fmt.Sprint(i)))
		}
		perSecond := func(d time.Duration) float64 {
			before := b.count("heartbeat")
			time.Sleep(d)
			return float64(b.count("heartbeat")-before) / n / d.Seconds()
		}
		time.Sleep(5 * time.Second)
		if got := perSecond(10 * time.Second); got > window+2 {
			b.Errorf("each waiter reads %.1f heartbeats a second, want at most %d", got, window+2)
		}
		for i := 0; i < n; i += window + 2 { // some are late, which costs one more reading for each
			ps[i].with(func(verb, _ string) fault { return map[string]fault{"set": notDone}[verb] })
		}
		time.Sleep(time.Second)
		if got := perSecond(2 * time.Second); got > window+3 {
			b.Errorf("each waiter reads %.1f heartbeats a second while some come late, want at most %d", got, window+3)
		}
	})
}

// All holders are watched, however many there are.
func TestManyHolders(t *testing.T) {
	bubble(t, func(b *bed) {
		for i := range 3 * window {
			e, _ := b.open()
			r := request("a", fmt.Sprint(i))
			r.Shared = true
			b.take(e, r)
			time.AfterFunc(time.Second, func() { _ = e.Close() })
		}
		e, _ := b.open()
		begun := time.Now()
		if err := <-b.waits(e, request("a", "writer")); err != nil {
			b.Fatal(err)
		}
		if took, bound := time.Since(begun), e.Bounds(10*time.Second).Crash; took > bound {
			b.Errorf("granted after %v, want at most %v", took, bound)
		}
	})
}

// A process that already waits for something else observes in time the holder that its new ticket waits for.
func TestNewTicketIsLookedAfter(t *testing.T) {
	for i := range 10 {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			busy, _ := b.open()
			r := request("busy", "1")
			r.TTL, r.Renewed = time.Hour, false
			b.take(busy, r)
			b.waits(e, request("busy", "2"))
			time.Sleep(5*time.Second + time.Duration(i)*100*time.Millisecond)

			dies, _ := b.open()
			r = request("a", "3")
			r.TTL = e.minTTL()
			g := b.take(dies, r)
			got := b.waits(e, request("a", "4"))
			if err := dies.Renew(b.Context(), r.Hold(g.Token), r.TTL); err != nil {
				b.Fatal(err)
			}
			begun := time.Now()
			_ = dies.Close()
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			if took, bound := time.Since(begun), e.Bounds(r.TTL).Crash; took > bound {
				b.Errorf("granted %v after the last renewal, want at most %v", took, bound)
			}
		})
	}
}
