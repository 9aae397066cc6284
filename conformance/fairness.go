package conformance

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockerproject/locker/driver"
)

var fairness = topic("fairness",
	newCase("first-come-first-served", "D5 C2",
		"waiters are granted in exactly the order in which they were queued", obeys(slices.Repeat([]kind{exclusively}, 9)...)).keepsBusy(),
	newCase("writer-not-overtaken", "D5 D6 C2",
		"a writer that waits for readers is not overtaken by later readers, whether they wait or try", obeys(shared(0), exclusively, shared(0), shared(5))),
	newCase("readers-together", "D4 D13 C2",
		"readers that wait for a writer are granted together when it releases", obeys(exclusively, shared(0), shared(0), shared(0), shared(0))),
	newCase("try-behind-permits", "D5 D6 C2",
		"TryAcquire of a permit that was just released does not overtake the waiters for one", obeys(shared(2), shared(2), shared(2), shared(2))),
	newCase("joined-called-once", "D6 D7 C2",
		"Joined is called once for a ticket that has to wait, and not for one that is granted at once or that does not wait", func(e *env) {
			name, d1, d2 := e.name("joined"), e.driver(), e.driver()
			first := e.acquireAt(d1, e.request(name))
			h := first.granted(patient, "it was asked for a free name")
			second := e.queueAt(d2, e.request(name), 2)
			second.awaitJoined(slacks(2))
			var called atomic.Bool
			try := e.request(name)
			try.Wait, try.Joined = false, func() { called.Store(true) }
			e.is(errOf(d2.Acquire(e.within(patience), try)), driver.ErrNotAcquired, "a request that does not wait")
			second.handOver(d1, h, d2)
			if called.Load() {
				e.failf("Joined was called for a request that does not wait")
			}
			if n := first.joined.Load(); n != 0 {
				e.failf("Joined was called %d times for a ticket that was granted at once", n)
			}
			if n := second.joined.Load(); n != 1 {
				e.failf("Joined was called %d times for a ticket that waited, want once", n)
			}
		}),
	newCase("joined-may-call", "D7 C2",
		"observers may use the Locker while they are notified: Joined may call the driver", func(e *env) {
			name, d1, d2 := e.name("joined-calls"), e.driver(), e.driver()
			h := e.grant(d1, e.request(name))
			r, inside := e.request(name), e.request(e.name("inside"))
			called := make(chan error, 1)
			r.Joined = func() {
				ctx := e.within(patience)
				_, inspected := d2.Inspect(ctx, name)
				g, err := d2.Acquire(ctx, inside)
				if err == nil {
					err = errors.Join(d2.Renew(ctx, inside.Hold(g.Token), inside.TTL), d2.Release(ctx, inside.Hold(g.Token)))
				}
				called <- errors.Join(inspected, err)
			}
			p := e.queueAt(d2, r, 2)
			select {
			case err := <-called:
				e.ok(err, "a call of the driver inside Joined: Acquire must hold no lock meanwhile (D7)")
			case <-e.within(2 * patience).Done():
				e.failf("calls of the driver inside Joined have not returned: Acquire must hold no lock meanwhile (D7)")
			}
			p.handOver(d1, h, d2)
		}),
	newCase("joined-may-take-long", "D7 D8 C2",
		"a ticket stays queued although Joined takes longer than Bounds.Liveness, as a slow observer may", func(e *env) {
			name, d1, d2 := e.name("joined-long"), e.driver(), e.driver()
			h := e.grant(d1, e.request(name))
			r, joined := e.request(name), make(chan struct{})
			end := sync.OnceFunc(func() { close(joined) })
			e.onHeal(end)
			r.TTL, r.Joined = e.leaseOf(waiterTTL), func() { <-joined }
			p := e.queueAt(d2, r, 2)
			takes := e.heartbeats()
			e.sleep(takes)
			queue := e.inspectAt(d1, name)
			if len(queue) != 2 || queue[1].ID != r.ID {
				e.failf("the queue is %+v when Joined has taken %v, want ticket %s second: Acquire keeps it alive meanwhile (D7)", queue, takes, r.ID)
			}
			end()
			p.handOver(d1, h, d2)
		}),
)
