package casqueue

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A visitor of one lock does not shorten the time for which a visitor of another lock has had the store keep the heartbeat of
// the process that held both.
func TestVisitorsOfTwoLocksOfOneProcess(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		long, short := request("a", "long"), request("b", "short")
		long.TTL, short.TTL = 2*time.Minute, 4*time.Second
		b.take(e, short)
		b.renew(e, short) // the heartbeat is kept for the short lease
		b.take(e, long)
		_ = e.Close()
		b.visit(request("a", "first"))
		b.visit(request("b", "other"))
		const every = 70 * time.Second
		time.Sleep(every)
		took := every + b.visits(every, func(r driver.Request) bool { return b.visit(r) })
		if bound := e.Bounds(long.TTL).Crash + every; took > bound {
			b.Errorf("granted after %v, want %v at the most", took, bound)
		}
	})
}

// However many waiters have died behind a holder, visits that are far apart find two of them dead: the first who blocks, and
// then all the others.
func TestVisitorsBehindForgottenWaiters(t *testing.T) {
	for dead := range 4 {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			bubble(t, func(b *bed) {
				holder, _ := b.open()
				r := request("a", "holder")
				r.TTL = 30 * time.Second
				b.take(holder, r)
				b.renew(holder, r)
				for i := range dead {
					e, _ := b.open()
					b.waits(e, request("a", fmt.Sprint("waiter", i)))
					time.Sleep(2 * time.Second)
					_ = e.Close()
				}
				_ = holder.Close()
				const every = 50 * time.Second // the store has forgotten heartbeats by then, and no queue
				if took := b.visits(every, func(r driver.Request) bool { return b.visit(r) }); took > 2*every+time.Second {
					b.Errorf("granted after %v, want the third visit", took)
				}
			})
		})
	}
}
