package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// handOffBound is the time of D13, for a store and a process that are idle.
const handOffBound = 100 * time.Millisecond

var handOffs = topic("fairness",
	// This finds drivers in which each waiter uses up something that others need, such as a connection of
	// a pool.
	newCase("many-waits", "D13 D16 C2",
		"a process that waits for a hundred names goes on acquiring, renewing and releasing others", func(e *env) {
			n := rounds(100)
			cs := e.clients(2)
			own := e.take(cs[1], e.name("own"), locker.WithTTL(lastingTTL))
			ns, held, ps := make([]string, n), make([]*locker.Lock, n), make([]*pending, n)
			begun := time.Now()
			e.each(n, func(i int) {
				ns[i] = e.name(fmt.Sprint("wait-", i))
				held[i] = e.take(cs[0], ns[i])
			})
			most := max(3*slack, 10*time.Since(begun)) // the store may be busy
			for i := range ps {
				ps[i] = e.acquire(cs[1], ns[i])
			}
			for _, name := range ns {
				e.awaitQueue(name, 2)
			}
			for range 3 {
				e.release(e.takeNow(cs[1], e.name("beside")))
				e.sleep(lastingTTL / 2)
			}
			e.holds(own, "renewed beside %d waits", n)
			begun = time.Now()
			e.each(n, func(i int) { e.release(held[i]) })
			for _, p := range ps {
				k := p.granted(patient, "the holder released")
				e.atMost(p.at.Sub(begun), most, "a grant beside %d waits", n)
				e.release(k)
			}
			e.release(own)
		}).keepsBusy(),
	// This finds drivers that watch only what blocks the first waiter of a process: another one may be
	// granted before it.
	newCase("permits-of-different-limits", "D4 D13 C2",
		"a waiter with a wide limit is granted at once, though one with a narrow limit waits ahead of it", func(e *env) {
			name, cs := e.name("limits"), e.clients(2)
			k1 := e.takeNow(cs[0], name, locker.Limit(3))
			narrow := e.queue(cs[1], name, 2, locker.Limit(1))
			k2 := e.takeNow(cs[0], name, locker.Limit(3))
			e.sleep(slack) // until the driver watches what blocks the narrow one
			wide := e.queue(cs[1], name, 4, locker.Limit(3))
			e.sleep(slack)
			begun := time.Now()
			e.release(k2)
			k3 := wide.granted(patient, "one of the three tickets ahead was released")
			e.atMost(wide.at.Sub(begun), slack, "the grant")
			narrow.waits("two tickets are ahead")
			e.release(k3)
			e.handOver(k1, narrow)
		}),
	// More than three quarters of the hand-offs must be in time: a waiter that polls every 250 ms is late in
	// more than half of them.
	newCase("hand-off-time", "D13 C2",
		"on an idle store the next waiter is granted within 100 ms of a release, however long it has waited, and whatever was granted before: it does not poll", func(e *env) {
			d1, d2 := e.driver(), e.driver()
			newly := e.handOffsOfOneName(d1, d2)
			writers, readers := e.handOffsAfterARest(d1, d2)
			for _, took := range [][]time.Duration{newly, writers, readers} {
				slices.Sort(took)
				if took[len(took)*3/4] > handOffBound {
					e.failf("a quarter of the hand-offs took more than %v, the bound of D13 for an idle store: %v; a waiter must be notified of its grant, not poll",
						handOffBound, took)
				}
			}
		}).at(alone),
)

// handOffsOfOneName measures hand-offs to waiters that have just been queued: each is the
// next holder.
func (e *env) handOffsOfOneName(d1, d2 driver.Driver) (took []time.Duration) {
	name := e.name("hand-off")
	h := e.grant(d1, e.request(name))
	for range 12 {
		took = append(took, e.measure(bound{handOffBound, "D13"}, func() time.Duration {
			p := e.queueAt(d2, e.request(name), 2)
			e.drop(d1, h)
			released := time.Now()
			h = p.granted(patient, "the holder released")
			d1, d2 = d2, d1
			return max(p.at.Sub(released), 0)
		}))
	}
	e.drop(d1, h)
	return took
}

// handOffsAfterARest measures hand-offs, one after the other, to waiters that have waited for so
// long that most backoffs have reached their greatest interval. The releases fall into
// random phases of a poll interval.
func (e *env) handOffsAfterARest(d1, d2 driver.Driver) (writers, readers []time.Duration) {
	const rest, spread = 600 * time.Millisecond, 275 * time.Millisecond
	const times = 8 // of each kind: their leases last while all are queued
	kinds := []kind{exclusively, shared(0)}
	waits := make([]func() time.Duration, times*len(kinds))
	for i := range waits {
		waits[i] = e.handOff(d1, d2, kinds[i%2])
	}
	e.sleep(rest)
	for i, release := range waits {
		one := e.measure(bound{handOffBound, "D13"}, func() time.Duration {
			if release == nil { // what took the first one's time was a stall
				release = e.handOff(d1, d2, kinds[i%2])
				e.sleep(rest)
			}
			defer func() { release = nil }()
			return release()
		})
		if i%2 == 0 {
			writers = append(writers, one)
			continue
		}
		readers = append(readers, one)
		e.sleep(e.random.upTo(spread))
	}
	return writers, readers
}

// handOff queues a waiter behind a holder. The result releases, and returns the time from the
// end of the release to the grant.
func (e *env) handOff(d1, d2 driver.Driver, kd kind) (release func() time.Duration) {
	name := e.name("hand-off")
	h, r := e.grant(d1, e.request(name)), e.request(name)
	r.Shared = kd.shared
	p := e.queueAt(d2, r, 2)
	return func() time.Duration {
		e.drop(d1, h)
		released := time.Now()
		e.drop(d2, p.granted(patient, "the holder released"))
		return max(p.at.Sub(released), 0)
	}
}
