package conformance

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// tries are the cases about requests that do not wait. They belong to the topic
// fairness.
var tries = []Case{
	{
		Topic: "fairness", Name: "try-never-queued", Rules: []string{"D6", "C2"},
		Explain: "a TryAcquire that is refused is never queued: meanwhile no reader is refused or waits, and Inspect does not show it",
		prove:   provesTryNeverQueued,
	},
	{
		Topic: "fairness", Name: "try-cut-off", Rules: []string{"D6", "C2"}, Needs: NeedLink,
		Explain: "a process that dies in the middle of a TryAcquire that would be refused has queued nothing",
		prove:   provesTryCutOff,
	},
}

// triesOwner marks the tickets that Inspect must not show.
const triesOwner = "a try that is refused"

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
	queue, err := d.Inspect(e.within(patience), name)
	e.ok(err, "inspect %q", name)
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

// provesTryNeverQueued does not depend on luck: a request that is queued at all is
// queued for at least one round trip of three, and two clients do nothing else.
func provesTryNeverQueued(e *env) {
	name := e.name("tries")
	holder, reader, watcher := e.driver(), e.driver(), e.driver()
	triers := []driver.Driver{e.driver(), e.driver()}
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
	e.each(4, func(i int) {
		switch i {
		case 0, 1:
			until(func() { e.tryIsRefused(triers[i], e.blockedTry(name, i == 1)); count.Add(1) })
		case 2:
			until(func() { e.noTry(watcher, name) })
		case 3:
			reads := int64(0)
			until(func() {
				e.readsBeside(reader, name, reads%2 == 1)
				if reads++; reads >= int64(rounds(60)) && count.Load() >= int64(rounds(60)) {
					end()
				}
			})
		}
	})
	e.drop(holder, h)
	e.empty(name)
}

// provesTryCutOff drops the replies to a TryAcquire, so that its first request is
// also its last.
func provesTryCutOff(e *env) {
	name, before := e.name("cut-try"), e.name("before")
	holder, reader := e.driver(), e.driver()
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
	p.cancel()
	_ = p.ended(slacks(2), "its context ended")
	link.Heal()
	e.drop(holder, h)
	e.empty(name)
}
