package sim

import (
	"slices"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// What is checked of what a call was promised: that a loss is known when its process is notified of it,
// that a fixed lease lasts as long as its own handle was promised, and that permits count who waits.

// loss is the loss of a ticket, of which its process was notified.
type loss struct {
	process, name string
	token         uint64
}

// pushed notes that a process was notified of a loss, and checks that it knows. Stores that are
// composed show other tokens.
func (o *oracle) pushed(process string, h driver.Hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.w.servers) > 1 || h.Token == 0 {
		return
	}
	o.losses[loss{process, h.Name, h.Token}] = time.Now()
	for _, held := range o.holds[h.Name] {
		if held.token == h.Token && held.p.name == process && held.alive() {
			o.w.fail("%v goes on, though its process was notified of its loss", held)
		}
	}
}

// known checks that a process does not hold what it was notified that it has lost, as long as it has to
// remember that. With mu held.
func (o *oracle) known(h *hold) {
	at, ok := o.losses[loss{h.p.name, h.name, h.token}]
	if ok && h.alive() && time.Since(at) < locker.DefaultAnswerTimeout {
		o.w.fail("%v begins, though its process was notified of its loss", h)
	}
}

// isWhole checks that a fixed lease that re-enters another one has its own length, whoever renews that one now.
func (o *oracle) isWhole(c *call, h *hold, k *locker.Lock) {
	if !c.s.fixed || o.w.sessions > 0 || o.w.watched || len(o.w.servers) > 1 { // the store may give less at a time
		return
	}
	end := k.Deadline()
	if early := c.begun.Add(c.s.ttl * 95 / 100).Sub(end); early > 0 && !end.IsZero() {
		o.w.fail("%s: the fixed lease of %v is over %v too early, at %v", c.t.name, h, early, end.Sub(o.w.begun))
	}
}

// cutShort checks that a fixed lease that re-enters another one was not over before its own time.
// With mu held.
func (o *oracle) cutShort(h *hold, e locker.Event, then time.Time) {
	for _, c := range o.calls {
		p := c.parts[h.name]
		if p == nil || p.hold != h || !p.reentered || !p.releasing.IsZero() || !c.s.fixed || h.p.plan.observer != "" {
			continue
		}
		early := c.begun.Add(c.s.ttl * 95 / 100).Sub(then)
		if early <= 0 || o.excused(h) || o.mayLose(h.p, h.begun, then, c.s.ttl) || h.p.isClosing() {
			continue
		}
		o.w.fail("%s: the fixed lease of %v was lost %v too early: %v", c.t.name, h, early, e.Err)
	}
}

// ends notes that the ticket of a lost lease has to go. With mu held.
func (o *oracle) ends(h *hold) {
	for _, c := range o.calls {
		if p := c.parts[h.name]; p != nil && p.hold == h && p.gone.IsZero() && c.s.minHold == 0 && !h.p.isDead() {
			p.gone = time.Now().Add(c.s.ttl/100 + o.slack(c))   // it is removed when the safety margin is over, too
			o.mustGo(p, removeTime+locker.DefaultAnswerTimeout) // its lease in the store may have begun when the answer came
		}
	}
}

// removeTime is how long the store has to be reachable for a ticket to be removed that nobody wants any more: for a request that
// was sent before to be given up, and the pause before the next one.
const removeTime = 3 * time.Second

// mustGo checks that the bank has no ticket of a call that has ended when its process could have removed it: in that time, or
// in that for which the core looks for one whose request may be late. With mu held.
func (o *oracle) mustGo(p *part, within time.Duration) {
	c := p.c
	if !o.w.exact || c.s.minHold > 0 || c.s.owner != "" || c.p.plan.observer != "" { // others may have re-entered its lease
		return
	}
	within += o.longest / 50 // the margin by which a lease ends earlier than in the store
	b := o.w.servers[0].model.(*bank)
	for _, id := range p.tickets {
		if b.there(p.name, id) {
			o.goes(p, id, within)
		} else {
			o.goes(p, id, within+o.lookedFor())
		}
	}
}

// goes checks later that a ticket has gone.
func (o *oracle) goes(p *part, id string, within time.Duration) {
	o.w.at(time.Now().Add(within), func() {
		now := time.Now()
		switch {
		case p.c.p.isDead() || p.c.p.isClosing() || !o.w.servers[0].model.(*bank).there(p.name, id):
		case o.w.free(p.c.p.name, now.Add(-within), now) < within:
			o.goes(p, id, within)
		default:
			o.w.fail("%s: the ticket %s for %s is there, and has been removable for %v", p.c.t.name, o.w.ticket(id), p.name, within)
		}
	})
}

// outnumbered checks that a permit was not granted with as many tickets ahead of it as there are permits:
// of those who hold, and of those who wait. In two stores each may have others ahead of it. With mu held.
func (o *oracle) outnumbered(p *part, waiting int) {
	if limit := p.c.s.limit; limit > 0 && waiting > 0 && p.hold != nil && !o.w.both {
		for _, other := range o.holds[p.name] {
			if other.token < p.hold.token && other.alive() && !o.excused(other) {
				waiting++
			}
		}
		if waiting >= limit {
			o.w.fail("%s was granted a permit of %d with %d ahead of it: %v", p.c.t.name, limit, waiting, p.hold)
		}
	}
}

// lookedFor is for how long the core looks for a ticket that a late request may bring back, and the
// request may be late.
func (o *oracle) lookedFor() time.Duration {
	if o.w.watched {
		return mostLag + aftermath
	}
	looks := 2 * time.Second
	for _, pause := range retry.LateChecks {
		looks += pause
	}
	return looks
}

// free checks, after the last fault, that a name that was asked for then was not free later than it had to
// be: all who wanted it have ended.
func (o *oracle) free(name string, asked time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.degraded { // the first store may have a ticket of a process that was closed
		return
	}
	by := latest(asked, o.w.quietSince(o.w.begun, time.Now()).Add(o.lookedFor()))
	known := false // else it is one that a process keeps
	for _, c := range o.calls {
		p := c.parts[name]
		if p == nil {
			continue
		}
		if known = true; p.gone.IsZero() || c.s.minHold > 0 || c.p.plan.observer != "" {
			return
		}
		by = latest(by, p.gone)
	}
	if late := time.Since(by); known && late > recovery && !o.w.remembered(name) {
		o.w.fail("%s was free %v after all tickets must have gone", name, late)
	}
}

// primarySilent is wasSilent of a call of Fallback that was queued on its first store, since nothing had
// been wrong before, and that this store has left without any sign of life.
func (o *oracle) primarySilent(c *call) bool {
	o.mu.Lock()
	queued, rejoined := c.parts[c.s.names[0]].queued, c.parts[c.s.names[0]].rejoined
	o.mu.Unlock()
	if c.s.verb != "acquire" || c.p.plan.observer != "" || queued.IsZero() || rejoined { // the second one may have answered then
		return false
	}
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	silent := false
	for _, f := range o.w.faults {
		if f.process != "" && f.process != c.p.name {
			continue
		}
		if f.from.Before(queued) {
			return false
		}
		first := f.server <= 0 && (f.process != "" && (f.kind == "cut" || f.kind == "suspend") || f.process == "" && f.kind == "pause")
		silent = silent || first && c.ended.Sub(f.from) > silence+compose.DefaultPatience && !f.to.Before(c.ended)
	}
	return silent
}

// outOfOrder reports whether a ticket that was asked for later than the call was queued may be ahead of its
// ticket: it has waited for another call of its owner first, or its second store has another order.
func (o *oracle) outOfOrder(c *call) bool {
	return c.s.owner != "" || o.w.mixed || o.w.both && c.s.shared
}

// goneFrom is when a ticket has gone, from the first store, too, if the second was asked instead. With mu held.
func (o *oracle) goneFrom(p *part) time.Time {
	if !o.degraded {
		return p.gone
	}
	if quiet := o.w.quietSince(p.c.begun, p.gone, p.c.p.name); quiet.After(p.c.begun) {
		return latest(p.gone, quiet)
	}
	return p.gone
}

// reentersFixed reports whether a call without renewal may have re-entered a lease, and its caller not know
// yet: nobody renews the lease when the other handles are released. With mu held.
func (o *oracle) reentersFixed(h *hold, then time.Time) bool {
	return slices.ContainsFunc(o.calls, func(c *call) bool {
		p := c.parts[h.name]
		return c.p == h.p && c.s.fixed && c.s.owner != "" && p != nil && p.hold == nil && (c.ended.IsZero() || c.ended.After(then))
	})
}
