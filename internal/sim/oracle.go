package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// oracle knows the true time of everything, and says what must not have happened.
type oracle struct {
	w       *world
	longest time.Duration // lease of the plan

	mu       sync.Mutex
	degraded bool // a substitute has granted a lock: two may hold a name
	calls    []*call
	holds    map[string][]*hold // by name, all that there ever were
	broken   map[string]map[uint64]bool
	events   map[uint64]locker.EventKind // the last of each acquisition
	grants   map[uint64]time.Time        // the time of each
	renewed  map[uint64]time.Time        // when the last renewal of each was asked for
}

func newOracle(w *world) *oracle {
	return &oracle{w: w, holds: make(map[string][]*hold), broken: make(map[string]map[uint64]bool), events: make(map[uint64]locker.EventKind), grants: make(map[uint64]time.Time), renewed: make(map[uint64]time.Time)}
}

// call is one call of the API, which may take several names.
type call struct {
	p     *process
	t     *thread
	s     *step
	ctx   context.Context
	begun time.Time
	over  time.Time // when its ctx ended; guarded by oracle.mu
	ended time.Time // when it returned, or was granted
	err   error
	parts map[string]*part
	lock  *locker.Lock
}

// part is one name of a call: the ticket, as far as the caller knows.
type part struct {
	c         *call
	name      string
	queued    time.Time // when the observers heard of it
	rejoined  bool
	reentered bool
	granted   time.Time
	gone      time.Time // when the ticket was certainly gone; zero: not yet
	releasing time.Time
	hold      *hold
}

// hold is a lock as its holder sees it: one lease, with one or more handles.
type hold struct {
	p       *process
	name    string
	token   uint64
	shared  bool
	limit   int
	begun   time.Time // of the call
	at      time.Time // of its return
	asked   time.Time // when the ticket was asked for; zero: it has waited
	ttl     time.Duration
	fixed   bool
	minHold time.Duration

	released bool // and the store has confirmed it
	handles  []<-chan struct{}
}

// alive reports whether a holder believes that it holds.
func (h *hold) alive() bool {
	if h.p.isDead() {
		return false
	}
	return slices.ContainsFunc(h.handles, func(done <-chan struct{}) bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	})
}

func (h *hold) String() string {
	return fmt.Sprintf("%s's hold of %s, token %d, asked at %v", h.p.name, h.name, h.token, h.begun.Sub(h.p.w.begun))
}

// begin notes that a call begins.
func (o *oracle) begin(ctx context.Context, t *thread, s *step) *call {
	c := &call{p: t.p, t: t, s: s, ctx: ctx, begun: time.Now(), parts: make(map[string]*part)}
	for _, name := range s.names {
		c.parts[name] = &part{c: c, name: name}
	}
	context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		c.over = time.Now()
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.ttl > 0 {
		o.calls = append(o.calls, c)
	}
	return c
}

// observe is the first observer of a process.
func (o *oracle) observe(p *process) func(context.Context, locker.Event) {
	return func(ctx context.Context, e locker.Event) {
		o.w.message("%s hears: %v %s %v", p.name, e.Kind, e.Name, e.Err)
		o.order(p, e)
		c, _ := ctx.Value(callKey{}).(*call)
		if c == nil {
			c = &call{p: p, t: &thread{p: p, name: p.name}, s: &step{}, parts: map[string]*part{e.Name: {}}} // the checker's
		}
		switch e.Kind {
		case locker.EventWaiting:
			o.mu.Lock()
			defer o.mu.Unlock()
			c.parts[e.Name].queued = time.Now()
		case locker.EventReentered:
			o.mu.Lock()
			defer o.mu.Unlock()
			c.parts[e.Name].reentered, c.parts[e.Name].granted = true, time.Now()
		case locker.EventAcquired:
			o.mu.Lock()
			defer o.mu.Unlock()
			c.parts[e.Name].granted, o.grants[e.ID] = time.Now(), time.Now()
			o.degraded = o.degraded || e.Degraded
		case locker.EventRejoined:
			o.mu.Lock()
			defer o.mu.Unlock()
			c.parts[e.Name].rejoined = true
			if !o.mayLose(p, c.begun, time.Now(), c.s.ttl) && !o.anyBroken(e.Name) && p.plan.observer != "slow" { // a grant may be over when a slow observer has heard that it waits
				o.w.fail("%s: a waiting ticket for %s was lost without a reason: %v", c.t.name, e.Name, e.Err)
			}
		case locker.EventRenewed:
			o.mu.Lock()
			defer o.mu.Unlock()
			o.renewed[e.ID] = time.Now().Add(-e.Elapsed)
		case locker.EventLost:
			o.lost(p, e)
		}
	}
}

// order checks the order of the events of one acquisition.
func (o *oracle) order(p *process, e locker.Event) {
	o.mu.Lock()
	last := o.events[e.ID]
	o.events[e.ID] = e.Kind
	o.mu.Unlock()
	before, after := last <= locker.EventRejoined, last == locker.EventAcquired || last == locker.EventRenewed || last == locker.EventRenewFailed
	var ok bool
	switch e.Kind {
	case locker.EventWaiting:
		ok = last == 0 || last == locker.EventRejoined
	case locker.EventRejoined, locker.EventAcquired, locker.EventReentered, locker.EventFailed:
		ok = before
	default:
		ok = after
	}
	if !ok {
		o.w.fail("%s: the event %v of %s comes after %v", p.name, e.Kind, e.Name, last)
	}
}

// mayLose reports whether there is a reason why a process may have lost a ticket with
// that TTL, which it has asked for at that time, by then.
func (o *oracle) mayLose(p *process, since, then time.Time, ttl time.Duration) bool {
	return p.isDead() || ttl < shortTTL || o.w.lostSince(since) || o.w.disturbed(p.name, then.Add(-ttl-recovery), then)
}

// shortTTL is the length of a lease below which a message that takes a few milliseconds may cost the lock.
const shortTTL = 500 * time.Millisecond

// lost checks that there was a reason for the loss of a lock.
func (o *oracle) lost(p *process, e locker.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	then := o.grants[e.ID].Add(e.Elapsed) // this may be heard later, if another observer is slow
	for _, h := range o.holds[e.Name] {
		if h.p != p || h.token != e.Token {
			continue
		}
		o.w.step("%s has lost %s: %v", p.name, h, e.Err)
		if o.stillThere(e) {
			o.w.fail("the store is said to have lost it, and has it: %v: %v", h, e.Err)
		}
		switch {
		case p.isDead() || o.wasBroken(e.Name, e.Token) || h.fixed && then.Sub(h.begun) >= h.ttl*97/100 || o.w.lostSince(h.begun), o.w.forgotten(h.name, h.token, h.begun):
			return
		case o.tooEarly(h, e, then), o.couldRenew(h, then):
		case o.mayLose(p, h.begun, then, h.ttl):
			return
		}
		o.w.fail("%v was lost without a reason, after %v of %v: %v", h, then.Sub(h.begun), h.ttl, e.Err)
	}
}

// stillThere reports whether the store has a ticket of which it is said to have said that
// it is gone.
func (o *oracle) stillThere(e locker.Event) bool {
	if len(o.w.servers) != 1 || o.w.watched || !errors.Is(e.Err, locker.ErrLost) {
		return false // with watched tickets the driver says so
	}
	k, ok := o.w.servers[0].model.(finder)
	return ok && k.has(e.Name, e.Token)
}

// breaks notes that a ticket is about to be broken.
func (o *oracle) breaks(name string, token uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken[name] == nil {
		o.broken[name] = make(map[uint64]bool)
	}
	o.broken[name][token] = true
}

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
			p.hold = h
			return
		}
	}
	h := &hold{
		p: c.p, name: p.name, token: k.Token(), shared: c.s.shared, limit: c.s.limit, begun: c.begun, at: now,
		ttl: c.s.ttl, fixed: c.s.fixed, minHold: c.s.minHold, handles: []<-chan struct{}{k.Done()},
	}
	p.hold = h
	if p.queued.IsZero() {
		h.asked = c.begun
	}
	if p.reentered { // who has asked for it has not got it yet: an observer is slow, or has panicked
		h.begun, h.asked = o.w.begun, time.Time{}
	}
	if !h.alive() {
		o.holds[p.name] = append(o.holds[p.name], h)
		return
	}
	for _, other := range o.holds[p.name] {
		o.compare(h, other)
	}
	o.overtaken(p)
	o.holds[p.name] = append(o.holds[p.name], h)
	o.limits(p.name)
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
	if other.at.Before(h.begun) && other.token >= h.token && !o.degraded {
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
	if o.degraded || p.reentered {
		return
	}
	for _, c := range o.calls {
		a := c.parts[p.name]
		if a == nil || a == p || a.queued.IsZero() || !a.queued.Before(p.c.begun) || a.rejoined || !a.granted.IsZero() || !c.ended.IsZero() {
			continue
		}
		if c.s.shared && p.c.s.shared || c.p.isDead() || c.p.isClosing() || c.isOver() || c.p.plan.observer == "slow" || c.s.ttl < shortTTL || c.s.owner != "" { // who has an owner may wait for what its own process asks for
			continue
		}
		if o.w.lostSince(a.queued) || o.w.disturbed(c.p.name, a.queued, time.Now()) || o.anyBroken(p.name) {
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

// anyBroken reports whether a ticket of a name was broken: nobody knows whose. With mu held.
func (o *oracle) anyBroken(name string) bool { return len(o.broken[name]) > 0 }

// wasBroken reports whether a ticket was broken. Stores that are composed show a waiter by
// another number. With mu held.
func (o *oracle) wasBroken(name string, token uint64) bool {
	return o.broken[name][token] || len(o.w.servers) > 1 && o.anyBroken(name)
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
			p.gone = o.goneAfter(c, err)
			p.hold.released = err == nil && c.s.verb != "do" && !p.hold.alive() && len(c.parts) == 1 && p.hold.minHold == 0 && !c.p.isClosing() && c.p.plan.observer == ""
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

// goneAfter is when a ticket has gone after a release that was answered with err. With mu held.
func (o *oracle) goneAfter(c *call, err error) time.Time {
	gone := time.Now()
	if end := c.ended.Add(c.s.minHold); c.s.minHold > 0 && end.After(gone) {
		gone = end.Add(time.Second)
	}
	if err != nil {
		gone = gone.Add(o.slack(c))
	}
	return gone
}

// slack is how long a ticket may stay whose owner cannot remove it.
func (o *oracle) slack(c *call) time.Duration {
	ttl := max(c.s.ttl, c.s.minHold, c.s.extend)
	now := time.Now()
	if b := driver.BoundsOf(c.p.d, ttl); !o.w.disturbed("", c.begun, now) {
		return 2*time.Second + min(c.s.minHold, b.Crash)
	}
	return o.w.quietSince(now, now).Sub(now) + aftermath // it is removed when the store is back
}

// endsAt is when the lease of a call has ended by itself that was last renewed then. With mu held.
func (o *oracle) endsAt(c *call, since time.Time) time.Time {
	if o.w.watched {
		return since.Add(1000 * time.Hour) // when somebody has watched it for long enough
	}
	longest := time.Duration(0)
	for _, other := range o.calls { // a re-entry may have lengthened it
		for name, p := range c.parts {
			if q := other.parts[name]; other == c || p.hold != nil && q != nil && q.hold == p.hold {
				longest = max(longest, other.s.ttl, other.s.minHold, other.s.extend)
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
			}
		}
	}
}

// extended checks the answer to Extend.
func (o *oracle) extended(c *call, begun time.Time, err error) {
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
			if c.p == p && (part.gone.IsZero() || part.gone.After(time.Now())) { // it may have been about to remove it
				part.gone = o.endsAt(c, time.Now())
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

// ended notes that a call has returned without a lock, and checks its error.
func (o *oracle) ended(c *call, err error) {
	o.w.step("%s %s %v: %v", c.t.name, c.s.verb, c.s.names, err)
	o.mu.Lock()
	c.ended, c.err = time.Now(), err
	if c.s.ttl > 0 && !c.p.isDead() {
		for _, p := range c.parts {
			p.gone = time.Now().Add(o.slack(c))
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
	if c.s.wait >= 0 && c.s.ttl > 0 && (c.s.wait > 0 || c.s.verb == "all") {
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
	default:
		bad("an error that makes no sense here")
	}
}

// unavailable reports whether the store may have been unavailable to a call.
func (o *oracle) unavailable(c *call) bool {
	o.mu.Lock()
	over, broken := c.over, o.anyBroken(c.s.names[0])
	o.mu.Unlock()
	if broken {
		return true // a ticket that is broken before its caller has it
	}
	if over.IsZero() && c.ctx.Err() != nil {
		over = time.Now()
	}
	if c.s.timeout > 0 && c.s.timeout < shortTTL || c.s.ttl > 0 && (c.s.ttl < shortTTL || c.s.wait > 0 && c.s.wait < shortTTL) || !over.IsZero() && over.Sub(c.begun) < shortTTL {
		return true // the store cannot answer that fast
	}
	// While a call waits for another one with the same owner, the time that the observers of that one take counts as the store's.
	return c.s.owner != "" && c.p.plan.observer == "slow" || o.w.disturbed(c.p.name, c.begun, time.Now())
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
	for _, c := range o.calls {
		if c.p.isDead() || c.ended.IsZero() || len(c.parts) > 1 {
			continue
		}
		p := c.parts[c.s.names[0]]
		o.waitedForNobody(p)
		if errors.Is(c.err, locker.ErrNotAcquired) && !errors.Is(c.err, locker.ErrUnavailable) && !o.wasBlocked(p) && !o.w.remembered(p.name) {
			o.w.fail("%s: %s %s at %v: nobody was in the way: %v", c.t.name, c.s.verb, p.name, c.begun.Sub(o.w.begun), c.err)
		}
	}
	for id, kind := range o.events {
		if kind == locker.EventWaiting || kind == locker.EventRejoined {
			o.w.fail("acquisition %d: the last event is %v", id, kind)
		}
	}
}

// triedInVain reports whether a call has never had a ticket: it did not wait, and was refused.
func (c *call) triedInVain() bool {
	return len(c.parts) == 1 && (c.s.verb == "try" || c.s.wait == 0) && errors.Is(c.err, locker.ErrNotAcquired)
}

// asked is when the ticket of a part was asked for, which it may have re-entered.
func (p *part) asked() time.Time {
	if p.hold != nil {
		return p.hold.begun
	}
	return p.c.begun
}

// blockers returns the tickets that may have been in the way of p. With mu held.
func (o *oracle) blockers(p *part) (all []*part) {
	for _, c := range o.calls {
		if b := c.parts[p.name]; b != nil && b != p && !c.triedInVain() && !c.begun.After(p.c.ended) && (b.gone.IsZero() || !b.gone.Before(p.c.begun)) {
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

// waitedForNobody checks that a ticket was not left waiting. With mu held.
func (o *oracle) waitedForNobody(p *part) {
	c := p.c
	if p.queued.IsZero() || p.rejoined || errors.Is(c.err, locker.ErrClosed) || c.p.plan.observer != "" {
		return
	}
	free := latest(p.queued, o.w.quietSince(p.queued, c.ended))
	for _, b := range o.blockers(p) {
		switch {
		case b.asked().After(p.queued) && b.c.t != c.t: // behind p
		case b.gone.IsZero() || b.gone.After(c.ended) || b.c.p.plan.observer != "":
			return
		case b.gone.After(free):
			free = b.gone
		}
	}
	if late := c.ended.Sub(free); late > o.w.late {
		o.w.fail("%s waited for %s until %v, though nobody was in the way for %v", c.t.name, p.name, c.ended.Sub(o.w.begun), late)
	}
}
