package casqueue

import (
	"fmt"
	"testing"
	"time"
)

// Tokens grow though the store loses the last changes of a queue, and nobody is left who knows them.
func TestTokensOfOldDocument(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		last, restore := uint64(0), func() {}
		for i := range 5 {
			r := request("a", fmt.Sprint(i))
			last = b.take(e, r).Token
			if err := e.Release(b.Context(), r.Hold(last)); err != nil {
				b.Fatal(err)
			}
			if i == 1 {
				restore = b.save()
			}
		}
		time.Sleep(5 * time.Second)
		restore()
		other, _ := b.open()
		if got := b.take(other, request("a", "next")).Token; got <= last {
			b.Errorf("token %d after %d", got, last)
		}
	})
}
