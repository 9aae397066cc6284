package casqueue

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Tokens grow even if the store loses the last changes of a queue, and no process is left that knows them.
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

// If the store has lost the lease of a ticket, but still has the ticket, a renewal begins the lease anew: to other
// processes it is the ticket of a waiter, whose life is shorter.
func TestRenewalOfOldRecord(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		b.take(holder, request("a", "0"))
		e, _ := b.open()
		r := request("a", "1")
		r.TTL = 30 * time.Second
		got := b.waits(e, r)
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		restore := b.save()
		if err := e.Renew(b.Context(), r.Hold(0), r.TTL); err != nil {
			b.Fatal(err)
		}
		restore()
		other, _ := b.open()
		next := b.waits(other, request("a", "2"))
		time.Sleep(time.Second)
		if err := e.Renew(b.Context(), r.Hold(0), r.TTL); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if err := <-next; err != nil || time.Since(begun) < r.TTL {
			b.Errorf("granted %v after a renewal for %v (%v)", time.Since(begun), r.TTL, err)
		}
	})
}

// A released ticket that is back, because the store has lost its last changes, ends as if its process had died. That
// process lives, and sends heartbeats for something else.
func TestReleasedTicketIsBack(t *testing.T) {
	bubble(t, func(b *bed) {
		busy, _ := b.open()
		r := request("busy", "0")
		r.Renewed, r.TTL = false, time.Hour
		b.take(busy, r)
		e, _ := b.open()
		b.waits(e, request("busy", "1"))
		r = request("a", "2")
		b.take(e, r)
		restore := b.save()
		if err := e.Release(b.Context(), r.Hold(0)); err != nil {
			b.Fatal(err)
		}
		restore()
		got, bound := b.waits(e, request("a", "3")), e.Bounds(r.TTL).Crash
		select {
		case err := <-got:
			if err != nil {
				b.Error(err)
			}
		case <-time.After(bound):
			b.Errorf("not granted after %v: queue %q", bound, b.queue(e, "a"))
		}
	})
}
