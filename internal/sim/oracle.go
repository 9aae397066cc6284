package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker"
)

// oracle knows the true time of everything, and says what must not have happened.
type oracle struct {
	w       *world
	longest time.Duration // lease of the plan

	mu       sync.Mutex
	degraded bool // a substitute has granted a lock: two may hold a name
	calls    []*call
	holds    map[string][]*hold              // by name, all that there ever were
	broken   map[string]map[uint64]time.Time // when a break of a ticket began
	untold   map[string]time.Time            // when an operator has last removed a ticket of a name, and told nobody
	events   map[uint64]locker.EventKind     // the last of each acquisition
	grants   map[uint64]time.Time            // the time of each
	renewed  map[uint64]time.Time            // when the last renewal of each was asked for
	losses   map[loss]time.Time              // of which a process was notified
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, holds: make(map[string][]*hold), broken: make(map[string]map[uint64]time.Time), untold: make(map[string]time.Time),
		events: make(map[uint64]locker.EventKind), grants: make(map[uint64]time.Time), renewed: make(map[uint64]time.Time), losses: make(map[loss]time.Time),
	}
}

// call is one call of the API, which may take several names.
type call struct {
	p     *process
	t     *thread
	s     *step
	ctx   context.Context
	leave context.CancelCauseFunc
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
	tickets   []string  // the IDs of those that it has asked for
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
	waited  bool      // … and was not re-entered, nor is one of a group, which may have been granted long before
	ttl     time.Duration
	fixed   bool
	minHold time.Duration

	extended time.Time // until then, nearly, by Extend
	released bool      // and the store has confirmed it
	gone     time.Time // released: since when it is not there
	handles  []<-chan struct{}
}

// leased is the earliest time from which the lease may count: a grant after a wait has to be
// made sure of soon before its caller gets it.
func (h *hold) leased() time.Time {
	if !h.waited || h.p.plan.observer != "" {
		return h.begun
	}
	return latest(h.begun, h.at.Add(-h.p.w.given(h.ttl)/5-time.Second))
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
			o.degraded = o.degraded || e.Degraded != nil
		case locker.EventRejoined:
			o.mu.Lock()
			defer o.mu.Unlock()
			c.parts[e.Name].rejoined = true
			if (!o.mayLose(p, c.begun, time.Now(), c.s.ttl) || o.couldKeep(c, c.parts[e.Name])) && !o.anyBroken(e.Name, c.begun) && !o.w.dropped(e.Name) && !o.w.mayLack(p.name, e.Name, c.parts[e.Name].tickets) && p.plan.observer != "slow" { // a grant may be over when a slow observer has heard that it waits
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
		h.fixed = h.fixed || o.reentersFixed(h, then)
		o.cutShort(h, e, then)
		o.ends(h)
		if o.stillThere(e) {
			o.w.fail("the store is said to have lost it, and has it: %v: %v", h, e.Err)
		}
		switch {
		case p.isDead() || o.wasBroken(e.Name, e.Token) || h.fixed && then.Sub(h.leased()) >= h.ttl*97/100 && !then.Before(h.extended) || o.w.lostSince(h.begun), o.w.forgotten(h.name, h.token, h.begun):
			return
		case o.tooEarly(h, e, then), o.couldRenew(h, then):
		case o.mayLose(p, h.begun, then, o.w.given(h.ttl)):
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

// tokens returns those of the locks of a name that are held: somebody else has told them.
func (o *oracle) tokens(name string) (all []uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.holds[name] {
		if h.alive() {
			all = append(all, h.token)
		}
	}
	return all
}

// brokeOne checks the answer to a break of a ticket that was there before, or was not.
func (o *oracle) brokeOne(c *call, token uint64, before bool, err error) {
	switch now := o.w.has(c.s.names[0], token); {
	case !now || c.p.isDead():
	case err == nil:
		o.w.fail("%s has broken %s %d, and it is there", c.t.name, c.s.names[0], token)
	case before && errors.Is(err, locker.ErrLost):
		o.w.fail("%s cannot break %s %d, which is said not to be there, and is: %v", c.t.name, c.s.names[0], token, err)
	}
}

// breaks notes that a ticket is about to be broken.
func (o *oracle) breaks(name string, token uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken[name] == nil {
		o.broken[name] = make(map[uint64]time.Time)
	}
	o.broken[name][token] = time.Now()
	if o.w.unheard {
		o.untold[name] = time.Now()
	}
}
