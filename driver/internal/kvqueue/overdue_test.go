package kvqueue

import (
	"testing"
	"time"
)

// A session that was not kept alive for its TTL takes no more tickets: Consul goes on to end one whose time is over, though
// it answers a keep-alive meanwhile, and a deposed leader answers one, too.
func TestOverdueSession(t *testing.T) {
	for _, renewed := range []bool{false, true} { // by somebody else, before the next ticket
		inBubble(t, func(b *bed) {
			first := b.get(b.e, request("a", "0"))
			time.Sleep(30*time.Second + time.Second) // nobody renews it
			if renewed {
				if err := b.e.Renew(b.Context(), first, 30*time.Second); err != nil {
					b.Fatal(err)
				}
			}
			second := b.get(b.e, request("b", "1"))
			if n := b.store.count("open"); n != 2 {
				b.Errorf("renewed %v: %d sessions were opened, want two", renewed, n)
			}
			b.drop(b.e, first)
			b.drop(b.e, second)
		})
	}
}
