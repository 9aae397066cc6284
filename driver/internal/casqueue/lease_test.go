package casqueue

import (
	"testing"
	"time"
)

// The store keeps a heartbeat, and the queue, until those who wait have concluded that the holder is dead: a long
// lease ends within the bound too, and nobody loses the position in the queue.
func TestLongLease(t *testing.T) {
	for _, ttl := range []time.Duration{15 * time.Minute, 30 * time.Minute} {
		bubble(t, func(b *bed) {
			holder, _ := b.open()
			r := request("a", "1")
			r.TTL = ttl
			g := b.take(holder, r)
			e, _ := b.open()
			got := b.waits(e, request("a", "2"))
			time.Sleep(time.Second)
			if err := holder.Renew(b.Context(), r.Hold(g.Token), ttl); err != nil {
				b.Fatal(err)
			}
			begun := time.Now()
			_ = holder.Close()
			if err := <-got; err != nil {
				b.Errorf("a lease of %v: the waiter got %v after %v", ttl, err, time.Since(begun))
			}
			if took, bound := time.Since(begun), e.Bounds(ttl).Crash; took < ttl || took > bound {
				b.Errorf("a lease of %v ended after %v, want at most %v", ttl, took, bound)
			}
		})
	}
}
