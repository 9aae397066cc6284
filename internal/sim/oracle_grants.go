package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// What is checked of grants and releases.

// acquired notes a grant, and checks it.
func (o *oracle) acquired(c *call, k *locker.Lock) {
	o.w.step("%s has %s, token %d", c.t.name, k.Name(), k.Token())
	o.mu.Lock()
	c.ended, c.lock = time.Now(), k
	for _, one := range k.Locks() {
		o.granted(c, c.parts[one.Name()], one)
	}
	o.mu.Unlock()
	o.inTime(c, nil)
}

// granted notes the grant of one name. With mu held.
func (o *oracle) granted(c *call, p *part, k *locker.Lock) {
	now := time.Now()
	p.granted = now
	for _, h := range o.holds[p.name] {
		if h.p == c.p && h.token == k.Token() { // re-entered
			if c.s.noReentry && !slices.ContainsFunc(c.lock.Locks(), func(m *locker.Lock) bool { return m != k && m.Name() == k.Name() }) {
				o.w.fail("%s: %v was re-entered by an acquisition that must not", c.t.name, h)
			}
			h.handles = append(h.handles, k.Done())
			h.fixed, h.released = h.fixed || c.s.fixed, false
			if !p.reentered { // who has asked for it returns after who has re-entered it
				h.minHold = c.s.minHold
			}
			p.hold = h
			o.isWhole(c, h, k)
			return
		}
	}
	h := &hold{
		p: c.p, name: p.name, token: k.Token(), shared: c.s.shared, limit: c.s.limit, begun: c.begun, at: now,
		ttl: c.s.ttl, fixed: c.s.fixed, minHold: c.s.minHold, handles: []<-chan struct{}{k.Done()},
	}
	p.hold = h
	o.known(h)
	if h.waited = !p.queued.IsZero() && !p.reentered && len(c.parts) == 1; p.queued.IsZero() {
		h.asked = c.begun
	}
	if p.reentered { // who has asked for it has not got it yet: an observer is slow, or has panicked
		h.begun, h.asked, h.fixed, h.limit = o.w.begun, time.Time{}, true, 0 // perhaps
		if o.w.sessions > 0 {                                                // its ticket ends with the session that was asked for
			for _, other := range o.calls {
				if other.p == c.p && other.s.owner == c.s.owner && other.parts[p.name] != nil {
					h.ttl = min(h.ttl, other.s.ttl)
				}
			}
		}
	}
	if over := now.Sub(k.Deadline()); over >= 0 && !p.reentered && len(c.parts) == 1 && c.p.plan.observer == "" && !c.p.hasSlept(c.begun) {
		o.w.fail("%s: %v was handed over %v after its lease was over", c.t.name, h, over)
	}
	if !h.alive() {
		o.holds[p.name] = append(o.holds[p.name], h)
		return
	}
	for _, other := range o.holds[p.name] {
		o.compare(h, other)
	}
	if len(c.parts) == 1 { // else it may have been granted long before
		o.lasts(h, k)
	}
	o.believes(h, k)
	o.overtaken(p)
	o.spreads(h)
	o.holds[p.name] = append(o.holds[p.name], h)
	o.limits(p.name)
}

// lasts checks that a lease that nobody renews has its length from when it was asked for, or granted.
func (o *oracle) lasts(h *hold, k *locker.Lock) {
	if !h.fixed || h.ttl < shortTTL || h.asked.IsZero() && !h.waited || o.w.sessions == 0 && !o.w.watched || len(o.w.servers) > 1 {
		return
	}
	if o.w.faulty(h.p.name, h.at.Add(-recovery), h.at) > 0 { // the lease counts from when the last request was sent
		return
	}
	end := k.Deadline()
	if early := h.leased().Add(o.w.given(h.ttl) * 95 / 100).Sub(end); early > 0 && !end.IsZero() {
		o.w.fail("the lease of %v is over %v too early, at %v", h, early, end.Sub(o.w.begun))
	}
}

// excused reports whether the world has broken what exclusion rests on since a grant. With mu held.
func (o *oracle) excused(h *hold) bool {
	return o.w.forgotten(h.name, h.token, h.begun) || o.wasBroken(h.name, h.token) || o.degraded
}

// compare checks a new hold against an earlier one. With mu held.
func (o *oracle) compare(h, other *hold) {
	if other.alive() && (!h.shared || !other.shared) && !o.excused(other) && !o.excused(h) {
		o.w.fail("two holders: %v, and %v", other, h)
	}
	minHold := time.Duration(float64(other.minHold) / (1 + o.w.drift))
	if early := other.begun.Add(minHold).Sub(h.at); early > 0 && (!h.shared || !other.shared) && !o.excused(other) && !o.excused(h) {
		o.w.fail("%v was granted %v before the end of the minimum hold of %v", h, early, other)
	}
	if other.at.Before(h.begun) && other.token >= h.token && !o.degraded && !o.w.setBack(other.at) {
		o.w.fail("a token does not grow: %v, then %v", other, h)
	}
	if other.token == h.token {
		o.w.fail("a token twice: %v, and %v", other, h)
	}
}

// limits checks that no semaphore has more holders than permits. With mu held.
func (o *oracle) limits(name string) {
	for _, h := range o.holds[name] {
		if h.limit == 0 || !h.alive() || o.excused(h) {
			continue
		}
		ahead := 0
		for _, other := range o.holds[name] {
			if other.token < h.token && other.alive() && !o.excused(other) {
				ahead++
			}
		}
		if ahead >= h.limit {
			o.w.fail("%d holders ahead of a permit of %d: %v", ahead, h.limit, h)
		}
	}
}

// overtaken checks that nobody was overtaken by a grant. With mu held.
func (o *oracle) overtaken(p *part) {
	if o.degraded || p.reentered || o.w.mixed {
		return
	}
	ahead := 0 // of a permit: tickets that share
	defer func() { o.outnumbered(p, ahead) }()
	for _, c := range o.calls {
		a := c.parts[p.name]
		if a == nil || a == p || a.queued.IsZero() || !a.queued.Before(p.c.begun) || a.rejoined || !a.granted.IsZero() || !c.ended.IsZero() {
			continue
		}
		if c.p.isDead() || c.p.isClosing() || c.isOver() || c.p.plan.observer == "slow" || c.s.ttl < shortTTL || c.s.owner != "" { // who has an owner may wait for what its own process asks for
			continue
		}
		if o.w.lostSince(a.queued) || o.w.disturbed(c.p.name, a.queued, time.Now()) || slices.ContainsFunc(c.s.names, func(name string) bool { return o.anyBroken(name, c.begun) }) { // a group ends when one of its locks is lost
			continue
		}
		if c.s.shared && p.c.s.shared {
			ahead++
			continue
		}
		o.w.fail("%s waits for %s since %v, and was overtaken by %s, which asked at %v",
			c.t.name, p.name, a.queued.Sub(o.w.begun), p.c.t.name, p.c.begun.Sub(o.w.begun))
	}
}

// isOver reports whether a call has reached its limit: it waits no longer. The oracle may
// hear of the end of its context later than the Client does. With mu held.
func (c *call) isOver() bool {
	return c.ctx.Err() != nil || c.s.wait >= 0 && time.Since(c.begun) >= c.s.wait
}

// anyBroken reports whether a ticket of a name was broken since then: nobody knows whose. With mu held.
func (o *oracle) anyBroken(name string, since time.Time) bool {
	for _, at := range o.broken[name] {
		if !at.Before(since) {
			return true
		}
	}
	return false
}

// wasBroken reports whether a ticket was broken. Stores that are composed show a waiter by
// another number. With mu held.
func (o *oracle) wasBroken(name string, token uint64) bool {
	return !o.broken[name][token].IsZero() || len(o.w.servers) > 1 && o.anyBroken(name, o.w.begun)
}

// releasing notes that a release begins.
func (o *oracle) releasing(c *call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range c.parts {
		p.releasing = time.Now()
	}
}

// released checks the answer to a release.
func (o *oracle) released(c *call, err error) {
	o.w.step("%s has released %s: %v", c.t.name, c.lock.Name(), err)
	o.mu.Lock()
	begun := time.Now()
	for _, p := range c.parts {
		begun = p.releasing
		if !c.p.isDead() {
			gone := o.goneAfter(p, err)
			if c.p.isClosing() { // Close may have left it to end by itself
				gone = latest(gone, p.gone)
			}
			p.gone = gone
			o.goesLater(p)
			if !p.hold.alive() && !errors.Is(err, locker.ErrLost) {
				o.mustGo(p, removeTime)
			}
			p.hold.released = err == nil && c.s.verb != "do" && !p.hold.alive() && len(c.parts) == 1 && p.hold.minHold == 0 && !c.p.isClosing() && c.p.plan.observer == "" && !o.reenters(c)
			p.hold.gone = p.gone
		}
	}
	o.mu.Unlock()
	bound := begun.Add(locker.DefaultReleaseTimeout + 100*time.Millisecond)
	if c.s.verb == "do" {
		bound = begun.Add(100 * time.Millisecond)
	}
	if errors.Is(err, locker.ErrLost) {
		err = nil // the event was checked
	}
	o.answered(c.p, "release", begun, bound, err)
}

// reenters reports whether another call of the same owner may be about to re-enter the lock. With mu held.
func (o *oracle) reenters(c *call) bool {
	return c.s.owner != "" && slices.ContainsFunc(o.calls, func(other *call) bool {
		return other.p == c.p && other.s.owner == c.s.owner && other.ended.IsZero()
	})
}

// goneAfter is when a ticket has gone after a release that was answered with err. A call that re-enters the lock meanwhile
// has a handle, too, and releases it when it fails. With mu held.
func (o *oracle) goneAfter(p *part, err error) time.Time {
	c, now := p.c, time.Now()
	gone, end := now, c.ended.Add(c.s.minHold)
	kept := c.s.minHold > 0 && end.After(p.releasing) // observers may have heard of it until after its end
	if kept {
		gone = latest(now, end.Add(time.Second))
	}
	later := kept || c.s.verb == "do" // it is removed after the answer: Do does not wait long for the store's, nor for Close
	if err != nil || o.reenters(c) || later && o.w.disturbed(c.p.name, now, now) || c.s.verb == "do" && c.p.isClosing() {
		gone = gone.Add(o.slack(c))
	}
	return gone
}

// goesLater has a ticket that is kept for its minimum hold stay for longer if there is a fault until it is removed. With mu held.
func (o *oracle) goesLater(p *part) {
	if p.c.s.minHold == 0 || !p.gone.After(time.Now()) {
		return
	}
	o.w.at(p.gone, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if now := time.Now(); o.w.disturbed(p.c.p.name, p.releasing, now) {
			p.gone = latest(p.gone, now.Add(o.slack(p.c)))
			p.hold.gone = p.gone
		}
	})
}

// slack is how long a ticket may stay whose owner cannot remove it.
func (o *oracle) slack(c *call) time.Duration {
	ttl := max(c.s.ttl, c.s.minHold, c.s.extend, c.s.extendToo)
	now, whom := time.Now(), ""
	if o.w.sessions > 0 { // its own process removes it, and a late request of another one does nothing for it
		whom = c.p.name
	}
	if b := driver.BoundsOf(c.p.d, ttl); !o.w.disturbed(whom, c.begun, now) {
		return 2*time.Second + min(c.s.minHold, b.Crash)
	}
	return o.w.quietSince(now, now).Sub(now) + o.lookedFor() // it is removed when the store is back
}

// endsAt is when the lease of a call has ended by itself that was last renewed then. With mu held.
func (o *oracle) endsAt(c *call, since time.Time) time.Time {
	if o.w.watched {
		return since.Add(1000 * time.Hour) // when somebody has watched it for long enough
	}
	longest := time.Duration(0)
	for _, other := range o.calls { // a re-entry may have lengthened it, also one that failed since its answer was late
		for name, p := range c.parts {
			q := other.parts[name]
			if other == c || q != nil && (p.hold != nil && q.hold == p.hold || q.hold == nil && other.p == c.p) {
				longest = max(longest, other.s.ttl, other.s.minHold)
				if o.w.sessions == 0 || len(o.w.servers) > 1 { // else it ends with its session
					longest = max(longest, other.s.extend, other.s.extendToo)
				}
			}
		}
	}
	b := driver.BoundsOf(c.p.d, longest)
	return since.Add(b.Crash + b.Liveness + 2*recovery)
}

// comeBack checks, when all requests have arrived, that no ticket is there that was released.
func (o *oracle) comeBack() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, holds := range o.holds {
		for _, h := range holds {
			for _, s := range o.w.servers {
				if k, ok := s.model.(finder); ok && h.released && k.has(name, h.token) {
					o.w.fail("%s has a ticket that was released: %v", s.name, h)
				}
				if n, ok := s.model.(*node); ok && h.released && !h.p.isClosing() && !h.p.isDead() && n.keepsOne(name, h.token) {
					o.w.fail("%s still has a ticket that was released, and its process is there to remove it: %v", s.name, h)
				}
			}
		}
	}
}

// extended checks the answer to Extend, and notes until when the lock is renewed at least.
func (o *oracle) extended(c *call, begun time.Time, d time.Duration, err error) {
	if err == nil && !c.p.isDead() {
		o.mu.Lock()
		for _, one := range c.lock.Locks() {
			h := c.parts[one.Name()].hold
			h.extended = latest(h.extended, begun.Add(d*95/100))
			o.believes(h, one)
		}
		o.mu.Unlock()
	}
	if errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrReleased) && c.p.isClosing() {
		return
	}
	o.answered(c.p, "extend", begun, begun.Add(locker.DefaultAnswerTimeout+100*time.Millisecond), err)
}

// panicked notes that a call ended with the panic of an observer.
func (o *oracle) panicked(c *call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.ended, c.err = time.Now(), errObserver
	for _, p := range c.parts {
		if !c.p.isDead() {
			p.gone = time.Now().Add(o.slack(c))
		}
	}
}

// dead notes that a process has died.
func (o *oracle) dead(p *process) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.calls {
		for _, part := range c.parts {
			if c.p == p && (part.gone.IsZero() || part.gone.Add(o.w.slow).After(time.Now())) { // it may have been about to remove it: of Redlock's nodes, from the last ones
				part.gone = o.endsAt(c, time.Now())
				if o.w.liveness > 0 && part.granted.IsZero() && !part.queued.IsZero() && !o.w.disturbed("", o.w.begun, time.Now()) {
					part.gone = time.Now().Add(driver.BoundsOf(p.d, c.s.ttl).Liveness) // all that have died together, however many
				}
			}
		}
	}
}

// closed notes that a process was closed.
func (o *oracle) closed(p *process) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.calls {
		for _, part := range c.parts {
			if c.p != p {
				continue
			}
			switch now := time.Now(); {
			case (o.w.hasSecond || part.granted.IsZero() && part.queued.IsZero()) && !c.ended.IsZero() && c.ended.Add(o.lookedFor()).After(p.closing): // a late request is not looked for any more, nor one to the first store
				part.gone = o.endsAt(c, latest(now, part.gone))
			case part.gone.After(p.closing) && o.w.disturbed(p.name, p.closing, now):
				part.gone = o.endsAt(c, latest(now, part.gone))
			case part.gone.IsZero() && o.w.disturbed(p.name, c.begun, now):
				part.gone = o.endsAt(c, now)
			case part.gone.IsZero():
				part.gone = now.Add(o.slack(c))
			}
			if kept := c.s.minHold > 0 && part.gone.After(p.closing); kept || c.s.fixed || c.s.extend > 0 { // its lease ends by itself
				part.gone = o.endsAt(c, part.gone)
			}
		}
	}
}
