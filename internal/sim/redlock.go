package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// What the nodes of Redlock have of a ticket, one by one.

// keepsOne reports whether this node of Redlock alone has a ticket that has not come back with old data.
func (n *node) keepsOne(name string, token uint64) bool {
	t := redisTicket{name, token}
	revived := n.revived(t)
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.held()[t]
	return ok && !revived && n.group != nil
}

// waiters returns the IDs of the tickets that wait on this node, by name. With mu held.
func (n *node) waiters() map[string][]string {
	all := make(map[string][]string)
	for key, v := range n.data {
		name, ok := strings.CutPrefix(key, "locker:{")
		if name, side, _ := strings.Cut(name, "}"); ok && (side == ":rx" || side == ":rs") {
			for id := range v.zset {
				all[name] = append(all[name], id)
			}
		}
	}
	return all
}

// drop notes the names for which a ticket waits on no majority any more, since this node has lost it: the others
// may have missed it, without any fault that its process could notice. With mu held.
func (n *node) drop(before map[string][]string) {
	if n.group == nil {
		return
	}
	n.excuse.mu.Lock()
	defer n.excuse.mu.Unlock()
	for name, ids := range before {
		for _, id := range ids {
			if there, _ := n.leaseOf(name, id, time.Now()); !there {
				n.excuse.dropped[name] = true
			}
		}
	}
}

// excused asks the excuses of the first server; false without a server of Redis.
func (w *world) excused(is func(*redisExcuses) bool) bool {
	if len(w.servers) == 0 {
		return false
	}
	n, ok := w.servers[0].model.(*node)
	if !ok {
		return false
	}
	n.excuse.mu.Lock()
	defer n.excuse.mu.Unlock()
	return is(n.excuse)
}

// dropped reports whether a waiter for a name may have lost its ticket with the data of a node of Redlock.
func (w *world) dropped(name string) bool {
	return w.excused(func(e *redisExcuses) bool { return e.dropped[name] })
}

// barred reports whether a node of Redlock has refused the number of a ticket: then it needs all but a minority of the
// others, and its process asks for another number only when so many are silent for three seconds.
func (w *world) barred(id string) bool {
	return w.excused(func(e *redisExcuses) bool { return e.barred[id] > 0 })
}

// mayLack reports whether the last of a call's tickets for a name may have had no majority lately: too many nodes of Redlock have
// refused its number, or were out of reach.
func (w *world) mayLack(process, name string, tickets []string) bool {
	if len(tickets) == 0 || !w.barred(tickets[len(tickets)-1]) {
		return false
	}
	number, have := int64(0), 0
	w.excused(func(e *redisExcuses) bool { number = e.barred[tickets[len(tickets)-1]]; return false })
	for _, s := range w.servers {
		n := s.model.(*node)
		n.mu.Lock()
		refuses := n.ledger.largest[name] > number
		n.mu.Unlock()
		if !refuses && w.reachable(process, s, 2*silence) {
			have++
		}
	}
	return have <= len(w.servers)/2
}

// proposed is a request for a ticket, as a node of Redlock gets it.
type proposed struct {
	name, id      string
	number, round int64
	mode, origin  byte
	known         bool // the node had the ticket before
}

// proposal reads the arguments of a script; false if that is another one.
func (n *node) proposal(keys, args []string) (p proposed, ok bool) {
	if n.group == nil || len(keys) != 2 || len(args) != 7 || len(args[3]) != 3 {
		return p, false
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(keys[0], "locker:{"), "}")
	p = proposed{name: name, id: args[0], mode: args[3][1], origin: args[3][2]}
	p.number, _ = strconv.ParseInt(args[1], 10, 64)
	p.round, _ = strconv.ParseInt(args[5], 10, 64)
	p.known, _ = n.here(p.name, p.id)
	return p, true
}

// ledger is what a node of Redlock has granted since it has last lost something.
type ledger struct {
	since   int64            // its clock then, in µs, if that was everything; else 0
	largest map[string]int64 // numbers that have held, by name
	rounds  map[string]int64 // of the last proposal that has changed a ticket, by ID
}

func newLedger(since int64) ledger {
	return ledger{since: since, largest: make(map[string]int64), rounds: make(map[string]int64)}
}

// accepted checks a proposal that a node has answered. Numbers never go back on a node that has kept its data, or are from before
// it has lost some; and what was proposed earlier for a ticket does not change it. What a majority has granted is the exception.
func (n *node) accepted(p proposed, answer any) {
	list, _ := answer.([]any)
	n.bars(p, len(list) > 0 && list[0] == int64(0))
	if len(list) == 0 || list[0] != int64(1) && list[0] != int64(2) {
		return
	}
	held, l, why := list[0] == int64(1), &n.ledger, ""
	switch {
	case p.mode != 'j' && p.known && p.round < l.rounds[p.id]:
		why = "after a later one"
	case p.origin != 'm' && held && !p.known && p.number < l.largest[p.name]:
		why = fmt.Sprintf("after the number %d has held", l.largest[p.name])
	case p.origin == 'r' && !p.known && l.largest[p.name] == 0 && p.number <= l.since:
		why = fmt.Sprintf("though it has lost its data at %d", l.since)
	}
	if why != "" {
		n.s.w.fail("%s has accepted the proposal %d of %d for %s %s", n.s.name, p.round, p.number, p.name, why)
	}
	if l.rounds[p.id] = p.round; held {
		l.largest[p.name] = max(l.largest[p.name], p.number)
	}
}

// bars notes that a node has refused the number of a ticket, or that the ticket has got another one.
func (n *node) bars(p proposed, refused bool) {
	n.excuse.mu.Lock()
	defer n.excuse.mu.Unlock()
	switch last := n.excuse.barred[p.id]; {
	case p.number < last:
	case refused:
		n.excuse.barred[p.id] = p.number
	case p.number > last:
		delete(n.excuse.barred, p.id)
	}
}

// setBack reports whether a node of Redlock has lost its fences at or after t, and was down for less than the clocks of the nodes
// differ: then a majority with it may not know of a number that came from a faster clock.
func (w *world) setBack(t time.Time) bool {
	for _, s := range w.servers {
		n, ok := s.model.(*node)
		if !ok || n.group == nil {
			return false
		}
		n.mu.Lock()
		lost, first, last := n.lostAt, n.time(), n.time()
		for _, other := range n.group {
			first, last = min(first, other.time()), max(last, other.time())
		}
		n.mu.Unlock()
		s.mu.Lock()
		down := s.down.Sub(lost)
		s.mu.Unlock()
		if !lost.Before(t) && down < time.Duration(last-first)*time.Microsecond {
			return true
		}
	}
	return false
}

// cleared checks, so long after a driver of Redlock has said that it has released a ticket, or that a try has left none, that no
// node has it: those that were not reached are asked again.
func (c *contract) cleared(h driver.Hold, asked time.Time, within time.Duration) {
	if n, ok := c.m.(*node); ok && n.group != nil {
		for _, one := range n.group {
			c.clearedOn(one, h, asked, within, 5)
		}
	}
}

func (c *contract) clearedOn(n *node, h driver.Hold, asked time.Time, within time.Duration, looks int) {
	c.w.at(time.Now().Add(within), func() {
		n.mu.Lock()
		here, _ := n.here(h.Name, h.ID)
		lost := n.lostAt.After(asked)
		n.mu.Unlock()
		switch {
		case !here || lost || c.closed.Load():
		case c.w.reachable(c.process, n.s, within):
			c.w.fail("%s still has the ticket %s for %s, %v after its release, and %s is there to remove it", n.s.name, c.w.ticket(h.ID), h.Name, time.Since(asked), c.process)
		case looks > 0:
			c.clearedOn(n, h, asked, within, looks-1)
		}
	})
}

// givenBack is how soon a node of Redlock is told, if nothing is wrong, that what holds there holds on no majority: before the next
// heartbeat, which would find that out.
const givenBack = 300 * time.Millisecond

// waits checks, soon after a ticket was queued on a majority, that it does not hold any more on nodes that have granted it, where they
// are too few: it would be in the way of others there, who may be in its way elsewhere.
func (c *contract) waits(r driver.Request) {
	n, ok := c.m.(*node)
	if !ok || n.group == nil {
		return
	}
	rounds := n.holding(r)
	c.w.at(time.Now().Add(givenBack), func() {
		for one, round := range n.holding(r) {
			if before, ok := rounds[one]; ok && before == round && !c.closed.Load() && c.w.reachable(c.process, one.s, 2*time.Second) {
				c.w.fail("%s: the ticket %s waits for %s, and holds on %s", c.process, c.w.ticket(r.ID), r.Name, one.s.name)
			}
		}
	})
}

// holding returns the nodes on which a ticket holds, and since which proposal, unless they are a majority.
func (n *node) holding(r driver.Request) map[*node]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	rounds := make(map[*node]int64)
	for _, one := range n.group {
		if _, until := one.here(r.Name, r.ID); !until.IsZero() {
			rounds[one] = one.ledger.rounds[r.ID]
		}
	}
	if len(rounds) > len(n.group)/2 {
		return nil
	}
	return rounds
}

// spreads checks, each second while a lock of Redlock is held exclusively, that each node that its holder reaches has the lease, or gets
// it soon: the driver says within two seconds, or with the next renewal if another ticket was in the way there. With mu held.
func (o *oracle) spreads(h *hold) {
	for _, s := range o.w.servers {
		if n, ok := s.model.(*node); ok && n.group != nil && !h.shared {
			o.spreadsTo(n, h, n.patience(h), 30)
		}
	}
}

// spreadsTo is spreads for one node, which has lacked the lease the last times. With mu held.
func (o *oracle) spreadsTo(n *node, h *hold, lacked, looks int) {
	o.w.at(time.Now().Add(time.Second), func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !h.alive() || h.p.isClosing() || o.wasBroken(h.name, h.token) || looks == 0 {
			return
		}
		lacked++
		if n.occupied(h.name, h.token) || !n.has(h.name, h.token) || !o.w.reachable(h.p.name, n.s, time.Second) {
			lacked = n.patience(h)
		}
		if lacked > 3 {
			o.w.fail("%s does not have the lease of %v", n.s.name, h)
			return
		}
		o.spreadsTo(n, h, lacked, looks-1)
	})
}

// patience is from what number of looks on, in seconds, the time counts that a holder has to give this node its lease: it asks
// again with its next renewal if another ticket is in the way now.
func (n *node) patience(h *hold) int {
	n.mu.Lock()
	_, holds := n.held()[redisTicket{h.name, h.token}]
	n.mu.Unlock()
	if holds || !n.occupied(h.name, h.token) {
		return 0
	}
	return -int(h.ttl/3/time.Second) - 1
}

// occupied reports whether a ticket holds on this node, or waits there with a smaller number than that.
func (n *node) occupied(name string, token uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.kept("locker:{" + name + "}")
	if main := n.data[q.key]; main != nil && (main.until == 0 || n.time()/1000 <= main.until) {
		return true
	}
	for _, set := range []string{"x", "s"} {
		if v := q.value(set); v != nil {
			for _, number := range v.zset {
				if number < float64(token) {
					return true
				}
			}
		}
	}
	return false
}

// reachable reports whether nothing was wrong between a process and a server for that long, of what may be.
func (w *world) reachable(process string, s *server, d time.Duration) bool {
	since := time.Now().Add(-d)
	s.mu.Lock()
	wrong := latest(latest(s.paused, s.down), latest(s.starting, s.full))
	paths := slices.Clone(s.paths)
	s.mu.Unlock()
	for _, p := range paths {
		if p.process != process {
			continue
		}
		p.mu.Lock()
		dead := p.dead
		wrong = latest(wrong, latest(p.cut, p.slow))
		for _, until := range p.tricked {
			wrong = latest(wrong, until)
		}
		p.mu.Unlock()
		if dead {
			return false
		}
	}
	return !wrong.After(since) && w.faulty(process, since, time.Now()) == 0
}
