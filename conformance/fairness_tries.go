package conformance

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// triesOwner marks the tickets that Inspect must not show.
const triesOwner = "a try that is refused"

var tries = topic("fairness",
	// A TryAcquire races with a release: if it succeeds before the waiter, which was queued first, it has
	// overtaken the waiter.
	newCase("try-in-hand-off", "D5 D6 C2",
		"TryAcquire never succeeds between a release and the grant of the next waiter", func(e *env) {
			name, cs := e.name("hand-off"), e.clients(3)
			for range rounds(12) {
				k := e.take(cs[0], name)
				w := e.queue(cs[1], name, 2)
				var jumped atomic.Bool
				e.together(func() { e.release(k) }, func() {
					for begun := time.Now(); !w.returned() && time.Since(begun) < slack; {
						if k, err := cs[2].TryAcquire(e.within(patience), name); err == nil {
							jumped.Store(true) // before the waiter's grant, or while it holds
							e.release(k)
						}
						e.sleep(100 * time.Microsecond)
					}
				})
				k = w.granted(patient, "the holder released")
				if jumped.Load() {
					e.failf("TryAcquire was granted %q while ticket %d was queued", name, k.Token())
				}
				e.release(k)
			}
		}).keepsBusy(),
	// This does not depend on luck: a request that is queued at all is queued for at least one round trip
	// of three, and two clients do nothing else.
	newCase("try-never-queued", "D6 C2",
		"a TryAcquire that is refused is never queued: meanwhile no reader is refused or waits, and Inspect does not show it", func(e *env) {
			name, holder, reader, watcher := e.name("tries"), e.driver(), e.driver(), e.driver()
			r := e.request(name)
			r.Shared = true
			h := e.grant(holder, r)

			const pause = 50 * time.Microsecond
			var count atomic.Int64
			over := make(chan struct{})
			end := sync.OnceFunc(func() { close(over) })
			until := func(f func()) {
				defer end()
				for {
					select {
					case <-over:
						return
					default:
						f()
						e.sleep(pause)
					}
				}
			}
			trying := func(d driver.Driver, shared bool) func() {
				return func() { until(func() { e.tryIsRefused(d, e.blockedTry(name, shared)); count.Add(1) }) }
			}
			reads := int64(0)
			e.together(trying(e.driver(), false), trying(e.driver(), true), func() { until(func() { e.noTry(watcher, name) }) }, func() {
				until(func() {
					e.readsBeside(reader, name, reads%2 == 1)
					if reads++; reads >= int64(rounds(60)) && count.Load() >= int64(rounds(60)) {
						end()
					}
				})
			})
			e.drop(holder, h)
		}),
	// The replies to the TryAcquire are dropped, so that its first request is also its last.
	newCase("try-cut-off", "D6 C2",
		"a process that dies in the middle of a TryAcquire that would be refused has queued nothing", func(e *env) {
			name, before, holder, reader := e.name("cut-try"), e.name("before"), e.driver(), e.driver()
			d, link := e.linkedDriver()

			reads := func(name string) driver.Hold {
				r := e.request(name)
				r.Shared = true
				return e.grant(holder, r)
			}
			// What a driver sets up once, such as a session, is not part of the request.
			warm := reads(before)
			e.drop(d, e.grant(d, e.request(e.name("warm"))))
			e.tryIsRefused(d, e.blockedTry(before, false))
			e.drop(holder, warm)

			h := reads(name)
			link.DropReplies(true)
			p := e.acquireAt(d, e.blockedTry(name, false))
			for begun := time.Now(); time.Since(begun) < slack/2; {
				e.noTry(holder, name)
				e.readsBeside(reader, name, false)
				e.sleep(slack / 50)
			}
			p.cancel(nil)
			_ = p.ended(slacks(2), "its context ended")
			link.Heal()
			e.drop(holder, h)
		}).needs(NeedLink),
)

// blockedTry is a request that is refused while a reader holds: exclusive, or
// for one permit.
func (e *env) blockedTry(name string, shared bool) driver.Request {
	r := e.request(name)
	r.Owner, r.Wait = triesOwner, false
	if shared {
		r.Shared, r.Limit = true, 1
	}
	return r
}

// tryIsRefused sends a request that must be refused while a reader holds.
func (e *env) tryIsRefused(d driver.Driver, r driver.Request) {
	g, err := d.Acquire(e.within(patience), r)
	if err == nil {
		_ = d.Release(e.within(patience), r.Hold(g.Token))
	}
	e.is(err, driver.ErrNotAcquired, "try to acquire %q while a reader holds", r.Name)
}

// noTry fails if Inspect shows a try that is refused.
func (e *env) noTry(d driver.Driver, name string) {
	queue := e.inspectAt(d, name)
	for _, t := range queue {
		if t.Owner == triesOwner {
			e.failf("the queue of %q shows ticket %d of a try that is refused (exclusive: %v); its request must not be queued, not even for a moment (D6)",
				name, t.Token, !t.Shared)
		}
	}
}

// readsBeside acquires and releases as a reader while a reader holds. It must be
// granted at once.
func (e *env) readsBeside(d driver.Driver, name string, wait bool) {
	var joined atomic.Bool
	r := e.request(name)
	r.Shared, r.Wait, r.Joined = true, wait, func() { joined.Store(true) }
	g, err := d.Acquire(e.within(patience), r)
	if err == nil {
		defer e.drop(d, r.Hold(g.Token))
	}
	e.ok(err, "acquire %q as a reader, while a reader holds and exclusive tries are refused (D6)", name)
	if joined.Load() {
		e.failf("a reader had to wait for %q, which a reader holds, because of a try that is refused (D6)", name)
	}
}
