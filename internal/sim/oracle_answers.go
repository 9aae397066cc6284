package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker"
)

// What is checked of answers: that they are true, and come in time.

// ended notes that a call has returned without a lock, and checks its error.
func (o *oracle) ended(c *call, err error) {
	o.w.step("%s %s %v: %v", c.t.name, c.s.verb, c.s.names, err)
	o.mu.Lock()
	c.ended, c.err = time.Now(), err
	if c.s.ttl > 0 && !c.p.isDead() {
		for _, p := range c.parts {
			o.mustGo(p, removeTime)
			p.gone = time.Now().Add(o.slack(c))
			if errors.Is(err, locker.ErrClosed) && (p.queued.IsZero() || c.s.owner != "") { // a late request is not looked for after Close
				p.gone = o.endsAt(c, p.gone)
			}
		}
	}
	o.mu.Unlock()
	o.inTime(c, err)
	o.isTrue(c, err)
}

// inTime checks that a call has come back when it had to.
func (o *oracle) inTime(c *call, err error) {
	if c.p.isDead() || c.p.plan.observer != "" {
		return
	}
	const within = 100 * time.Millisecond
	o.mu.Lock()
	defer o.mu.Unlock()
	now, bound, why := c.ended, time.Time{}, ""
	limit := func(t time.Time, reason string) {
		if !t.IsZero() && (bound.IsZero() || t.Before(bound)) {
			bound, why = t, reason
		}
	}
	limit(c.over, "the end of its context")
	c.p.mu.Lock()
	if !c.p.closing.IsZero() {
		limit(latest(c.p.closing, c.begun), "Close")
	}
	c.p.mu.Unlock()
	switch {
	case c.s.ttl == 0:
		limit(c.begun.Add(2*locker.DefaultAnswerTimeout), "the answer timeout") // breaks are two requests
	case c.s.verb != "all" && c.parts[c.s.names[0]].queued.IsZero():
		limit(c.begun.Add(locker.DefaultAnswerTimeout), "the answer timeout")
	}
	if c.s.verb != "try" && c.s.wait >= 0 && c.s.ttl > 0 && (c.s.wait > 0 || c.s.verb == "all") {
		limit(c.begun.Add(max(c.s.wait, 0)), "its wait limit")
	}
	if c.s.verb == "all" && c.s.wait == 0 {
		bound = time.Time{}
	}
	if late := now.Sub(bound) - within; !bound.IsZero() && late > 0 {
		o.w.fail("%s: %s %v came back %v after %s: %v", c.t.name, c.s.verb, c.s.names, now.Sub(bound), why, err)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// isTrue checks the error of a call.
func (o *oracle) isTrue(c *call, err error) {
	if c.p.isDead() {
		return
	}
	s := c.s
	bad := func(why string) { o.w.fail("%s: %s %v: %s: %v", c.t.name, s.verb, s.names, why, err) }
	o.mu.Lock()
	over := !c.over.IsZero() || c.ctx.Err() != nil
	o.mu.Unlock()
	ctxError := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	limited := s.verb == "try" || s.wait >= 0
	switch {
	case err == nil && s.ttl == 0:
	case errors.Is(err, locker.ErrClosed):
		if !c.p.isClosing() {
			bad("nobody has closed the Client")
		}
	case errors.Is(err, locker.ErrUnavailable):
		if !o.unavailable(c) {
			bad("the store was available all the time")
		}
	case errors.Is(err, locker.ErrNotAcquired):
		switch {
		case !limited || s.ttl == 0:
			bad("it had no limit")
		case o.wasSilent(c):
			bad("the store was silent all the time")
		}
	case s.verb == "do" && (errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrReleased)): // before its function ran
	case errors.Is(err, locker.ErrLost) && s.verb != "all" && s.verb != "break", errors.Is(err, locker.ErrReleased) && s.verb != "all":
		bad("there was no lock yet")
	case errors.Is(err, locker.ErrUpgrade), errors.Is(err, locker.ErrInvalidOption), errors.Is(err, locker.ErrUnsupported),
		errors.Is(err, locker.ErrLost), errors.Is(err, locker.ErrReleased):
	case ctxError && over:
		if o.wasSilent(c) && !c.p.isClosing() { // Close may have ended the context: that of a lock
			bad("the store was silent all the time")
		}
	default:
		bad("an error that makes no sense here")
	}
}

// unavailable reports whether the store may have been unavailable to a call.
func (o *oracle) unavailable(c *call) bool {
	o.mu.Lock()
	over, broken := c.over, o.anyBroken(c.s.names[0], c.begun)
	part, ttl := c.parts[c.s.names[0]], o.leastTTL(c)
	waited := o.w.exact && len(c.parts) == 1 && c.s.owner == "" && part != nil && !part.queued.IsZero()
	begun := c.begun // of its last request
	for _, p := range c.parts {
		begun = latest(begun, p.granted)
	}
	o.mu.Unlock()
	if broken {
		return true // a ticket that is broken before its caller has it
	}
	if over.IsZero() && c.ctx.Err() != nil {
		over = time.Now()
	}
	if waited { // the store has answered
		return c.p.plan.observer != "" || o.w.disturbed(c.p.name, c.begun, time.Now())
	}
	short := shortTTL + o.w.slow
	if len(c.parts) > 1 {
		short += c.p.observed(c, over)
	}
	if deadline, ok := c.ctx.Deadline(); ok && deadline.Sub(c.begun) < short { // also that of the call around this one
		return true
	}
	if c.s.timeout > 0 && c.s.timeout < short || c.s.ttl > 0 && (ttl < shortTTL || c.s.verb != "try" && c.s.wait > 0 && c.s.wait < short) || !over.IsZero() && over.Sub(begun) < short {
		return true // the store cannot answer that fast
	}
	// While a call waits for another one with the same owner, the time that observers take may count as the store's.
	return c.p.napped(c, over) || o.w.disturbed(c.p.name, c.begun, time.Now()) || o.w.liveness > 0 && o.w.sentTwice(c.p.name, c.begun, time.Now())
}

// leastTTL is the shortest lease that a call has asked for, or another call of its owner, for which it may have waited. With mu held.
func (o *oracle) leastTTL(c *call) time.Duration {
	least := c.s.ttl
	for _, other := range o.calls {
		if other.p == c.p && c.s.owner != "" && other.s.owner == c.s.owner && other.parts[c.s.names[0]] != nil && (other.ended.IsZero() || !other.ended.Before(c.begun)) {
			least = min(least, other.s.ttl)
		}
	}
	return least
}

// answered checks the answer to a call that may be made at any time.
func (o *oracle) answered(p *process, what string, begun, bound time.Time, err error) {
	now := time.Now()
	switch {
	case p.isDead():
	case now.After(bound) && p.plan.observer == "":
		o.w.fail("%s: %s took %v", p.name, what, now.Sub(begun))
	case err != nil && errors.Is(err, locker.ErrUnavailable) && !o.w.disturbed(p.name, begun, now):
		o.w.fail("%s: %s: the store was available all the time: %v", p.name, what, err)
	case err != nil && !errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, locker.ErrClosed) && !p.isClosing() && !o.w.disturbed(p.name, begun, now):
		o.w.fail("%s: %s: an error that makes no sense here: %v", p.name, what, err)
	}
}

// review checks, when all is over, what can only be said then.
func (o *oracle) review() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reviewCalls()
	for id, kind := range o.events {
		if kind == locker.EventWaiting || kind == locker.EventRejoined {
			o.w.fail("acquisition %d: the last event is %v", id, kind)
		}
	}
}

// cutOff checks, when a run ends before its time, what can be said already: also of calls that still wait. What comes after
// it is no violation.
func (o *oracle) cutOff() {
	o.mu.Lock()
	defer o.mu.Unlock()
	var waiting []*call
	for _, c := range o.calls {
		if c.ended.IsZero() {
			c.ended, waiting = time.Now(), append(waiting, c)
		}
	}
	o.reviewCalls()
	for _, c := range waiting {
		c.ended = time.Time{}
	}
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	o.w.over = true
}

// reviewCalls checks calls that have ended. With mu held.
func (o *oracle) reviewCalls() {
	for _, c := range o.calls {
		if c.p.isDead() || c.ended.IsZero() || len(c.parts) > 1 {
			continue
		}
		p := c.parts[c.s.names[0]]
		o.waitedForNobody(p)
		if errors.Is(c.err, locker.ErrNotAcquired) && !errors.Is(c.err, locker.ErrUnavailable) && !o.wasBlocked(p) && !o.w.remembered(p.name) && !o.isUntold(p) {
			o.w.fail("%s: %s %s at %v: nobody was in the way: %v", c.t.name, c.s.verb, p.name, c.begun.Sub(o.w.begun), c.err)
		}
	}
}

// triedInVain reports whether a call has never had a ticket: it did not wait, and was refused.
func (c *call) triedInVain() bool {
	return !c.p.w.sentTwice(c.p.name, c.begun, c.ended) && len(c.parts) == 1 && (c.s.verb == "try" || c.s.wait == 0) && errors.Is(c.err, locker.ErrNotAcquired)
}

// asked is when the ticket of a part was asked for, which it may have re-entered.
func (p *part) asked() time.Time {
	if p.hold != nil {
		return p.hold.begun
	}
	return p.c.begun
}

// blockers returns the tickets that may have been in the way of p: on Redlock, also that of a try that was refused only just now, which
// holds on some nodes until it has given them back. With mu held.
func (o *oracle) blockers(p *part) (all []*part) {
	for _, c := range o.calls {
		inVain := c.triedInVain() && (o.w.slow == 0 || p.c.ended.Sub(c.ended) > o.w.late)
		if b := c.parts[p.name]; b != nil && b != p && !inVain && !c.begun.After(p.c.ended) && (b.gone.IsZero() || !o.goneFrom(b).Before(p.c.begun)) {
			all = append(all, b)
		}
	}
	return all
}

// wasBlocked reports whether somebody was in the way of p while it asked. With mu held.
func (o *oracle) wasBlocked(p *part) bool {
	shared, exclusive := 0, 0
	for _, b := range o.blockers(p) {
		switch s := b.c.s; {
		case s.owner != "" && s.owner == p.c.s.owner && b.c.p == p.c.p: // a try does not wait for its own owner's request
			return true
		case s.shared && (b.hold == nil || b.hold.shared): // it may have re-entered an exclusive one
			shared++
		default:
			exclusive++
		}
	}
	return exclusive > 0 || !p.c.s.shared && shared > 0 || p.c.s.limit > 0 && shared >= p.c.s.limit
}

// isUntold reports whether an operator has removed a ticket soon before the end of a call: nobody
// was told, so it may take until the next reading of the queue. With mu held.
func (o *oracle) isUntold(p *part) bool {
	at := o.untold[p.name]
	return !at.IsZero() && at.Before(p.c.ended) && p.c.ended.Sub(at) < aftermath
}

// untoldBy is how long it may take until a waiter finds out that a ticket has gone whose process has
// died before it could tell others: until the next reading of a queue that is watched. With mu held.
func (o *oracle) untoldBy(b *part) time.Duration {
	const reading = time.Second
	b.c.p.mu.Lock()
	defer b.c.p.mu.Unlock()
	if died := b.c.p.died; o.w.watched && !died.IsZero() && died.Sub(b.gone).Abs() < reading {
		return reading
	}
	return 0
}

// lastGone is when a ticket had gone, or the end of time.
func (p *part) lastGone() time.Time {
	if p.gone.IsZero() {
		return time.Unix(1<<40, 0)
	}
	return p.gone
}

// waitedForNobody checks that a ticket was not left waiting. With mu held.
func (o *oracle) waitedForNobody(p *part) {
	c := p.c
	if p.queued.IsZero() || p.rejoined || errors.Is(c.err, locker.ErrClosed) || c.p.plan.observer != "" {
		return
	}
	free, concerned := p.queued, []string{c.p.name}
	blockers, permits := o.blockers(p), 0
	if c.s.limit > 0 && o.w.sessions > 0 && !o.outOfOrder(c) { // those who were there for the longest time have the others
		permits = c.s.limit - 1
		slices.SortFunc(blockers, func(a, b *part) int { return b.lastGone().Compare(a.lastGone()) })
	}
	for _, b := range blockers {
		if !o.confirmed(b, c.ended) || o.w.inTurn && c.s.limit > 0 {
			concerned = append(concerned, b.c.p.name)
		}
		switch {
		case !o.outOfOrder(c) && b.asked().After(p.queued) && b.c.t != c.t: // behind p
		case permits > 0 && b.c.s.shared && (b.hold == nil || b.hold.shared):
			permits--
		case b.gone.IsZero() || b.gone.After(c.ended) || b.c.p.plan.observer != "":
			return
		default:
			free = latest(free, b.gone.Add(o.untoldBy(b)))
		}
	}
	free = latest(free, o.w.quietSince(p.queued, c.ended, concerned...))
	most := o.w.late
	if slices.ContainsFunc(p.tickets, o.w.barred) { // a fault of a minority may leave it no majority
		most += 3 * time.Second
	}
	if late := c.ended.Sub(free); late > most && (late > aftermath || !o.isUntold(p)) {
		o.w.fail("%s waited for %s until %v, though nobody was in the way for %v", c.t.name, p.name, c.ended.Sub(o.w.begun), late)
	}
}
