package sim

import (
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
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
			p.gone = time.Now().Add(o.slack(c))
		}
	}
}

// outnumbered checks that a permit was not granted with as many tickets ahead of it as there are permits:
// of those who hold, and of those who wait. With mu held.
func (o *oracle) outnumbered(p *part, waiting int) {
	if limit := p.c.s.limit; limit > 0 && waiting > 0 && p.hold != nil {
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
