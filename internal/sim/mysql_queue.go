package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// What the procedures of driver/mysql do, one after the other, as procedures.sql says. No transaction guards a ticket.

// myTicket is a row of the table of tickets.
type myTicket struct {
	entry               string
	seq                 uint64
	named               bool // else it is an anchor without a ticket
	name, id            string
	process, heartbeat  int64
	queued, held, fresh bool // fresh: provisional
	shared              bool
	permits, ttl        int64
	since, expires      int64 // µs of the server's clock
	owner, note         string
}

// myProcess is a row of the table of processes.
type myProcess struct {
	heartbeat, alive int64
	server           uint64
	connection       int64
}

// myTables is what a server has.
type myTables struct {
	tickets   map[string]*myTicket // by their entries
	processes map[int64]*myProcess
	next      uint64 // AUTO_INCREMENT
	raised    uint64 // the start that tokens were last raised for
	swept     int64  // until when nobody has to sweep
}

// myCall is one transaction.
type myCall struct {
	*myTables
	d          *innodb
	l          *myLink
	asked, now int64 // when it began, and when it has its locks, on the server's clock
	mine       string
	woken      []int64
}

// What a procedure has done.
const (
	myNothing  = iota
	myDone     // granted, removed, moved on
	myQueued   // and the number is microseconds
	myRefused  // since the ticket does not wait
	myUnknown  // the process has no row
	myLate     // the request arrived too late, or at another server
	myNoSlot   // there is no such slot
	myOutlived // the lease of the ticket has ended
)

func (c *myCall) done(what int, number int64) myAnswer {
	return myAnswer{rows: [][]any{{what, number, c.mine}}, columns: 3}
}

// queue returns the tickets of a name, in order.
func (t *myTables) queue(name string) (all []*myTicket) {
	for _, k := range t.tickets {
		if k.named && k.name == name {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *myTicket) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

func (t *myTables) byID(name, id string) *myTicket {
	for _, entry := range []string{name, "\xff" + id} {
		if k := t.tickets[entry]; k != nil && k.named && k.name == name && k.id == id {
			return k
		}
	}
	return nil
}

// end is until when a ticket lives; less than any time if its process has no row.
func (c *myCall) end(k *myTicket) int64 {
	if k.held {
		return k.expires
	}
	if p := c.processes[k.process]; p != nil {
		return p.alive
	}
	return math.MinInt64
}

// endOr is end, or that other time if the process of a ticket that waits has no row.
func (c *myCall) endOr(k *myTicket, other int64) int64 {
	if e := c.end(k); e != math.MinInt64 {
		return e
	}
	return other
}

func (c *myCall) live(k *myTicket) bool { return c.end(k) > c.now }

func (c *myCall) alive(process int64) bool {
	p := c.processes[process]
	return p != nil && p.alive > c.now
}

// micros is the time until at, an hour at the most; 0: there is no such time.
func (c *myCall) micros(at int64) int64 {
	if at == math.MinInt64 {
		return 0
	}
	return min(at-c.now, 3600e6)
}

// remove deletes a ticket. An anchor stays.
func (c *myCall) remove(k *myTicket) {
	if k.entry == k.name {
		*k = myTicket{entry: k.entry, seq: k.seq, queued: true, process: k.process, shared: k.shared, permits: k.permits, ttl: k.ttl, since: k.since}
		return
	}
	delete(c.tickets, k.entry)
}

// grant makes a waiting ticket a holder.
func (c *myCall) grant(k *myTicket, process int64) {
	p := c.processes[k.process]
	if !k.shared {
		delete(c.tickets, k.entry)
		k.entry = k.name
		c.tickets[k.entry] = k
	}
	k.queued, k.held, k.fresh, k.since, k.heartbeat = !k.shared, true, true, c.now, p.heartbeat
	k.expires = min(c.now+k.ttl, p.alive)
	if k.process == process {
		c.mine += fmt.Sprintf("g %s %d %d\n", k.id, k.seq, k.heartbeat)
	} else {
		c.wakes(k.process)
	}
}

func (c *myCall) wakes(process int64) {
	if !slices.Contains(c.woken, process) {
		c.woken = append(c.woken, process)
	}
}

// exclusive returns the number of the first exclusive ticket of a queue that fits.
func exclusive(queue []*myTicket, fits func(*myTicket) bool) uint64 {
	for _, k := range queue {
		if !k.shared && fits(k) {
			return k.seq
		}
	}
	return math.MaxUint64
}

func whatever(*myTicket) bool { return true }

// walk is {call_walk}.
func (c *myCall) walk(name string, process int64, all bool) {
	queue, bound := c.queue(name), uint64(math.MaxUint64)
	if !all {
		bound = exclusive(queue, c.live)
	}
	for _, k := range queue {
		if k.seq >= bound || c.live(k) {
			continue
		}
		if !k.held {
			delete(c.processes, k.process)
		}
		c.remove(k)
	}
	queue = c.queue(name)
	bound = exclusive(queue, whatever)
	for i, k := range queue {
		place := int64(i + 1)
		if k.seq > bound || k.held || !c.alive(k.process) || k.shared && k.permits != 0 && place > k.permits || !k.shared && place > 1 {
			continue
		}
		c.grant(k, process)
	}
	c.clear(name)
}

// clear deletes the anchor of a queue that is empty.
func (c *myCall) clear(name string) {
	if a := c.tickets[name]; a != nil && !a.named && len(c.queue(name)) == 0 {
		delete(c.tickets, name)
	}
}

// insert inserts a ticket.
func (c *myCall) insert(k *myTicket) {
	k.seq, k.named = c.next, true
	c.next++
	if c.tickets[k.entry] != nil {
		panic("sim: MySQL: an entry is there twice: " + k.entry)
	}
	c.tickets[k.entry] = k
}

// takeFree is the statement take.
func (c *myCall) takeFree(k *myTicket, until int64, start uint64) myAnswer {
	c.next++
	if c.now >= until || start != c.d.start {
		return refused(myNull)
	}
	if a := c.tickets[k.name]; a != nil {
		blocked := uint64(0)
		if a.named && a.held && !a.shared && a.id != k.id && a.expires > c.asked {
			blocked = 1
		}
		return myAnswer{key: blocked}
	}
	c.next--
	k.entry, k.held, k.since, k.expires = k.name, true, c.asked, c.asked+k.ttl
	c.insert(k)
	return myAnswer{changed: 1, key: k.seq}
}

// take is {call_take}.
func (c *myCall) take(k *myTicket, wait bool, until int64, start uint64) myAnswer {
	if start != c.d.start || c.now >= until {
		return c.done(myLate, 0)
	}
	anchor := c.tickets[k.name]
	blocked, ends, own := false, int64(math.MinInt64), (*myTicket)(nil)
	if a := anchor; a != nil && a.named && a.held && !a.shared && a.id != k.id && a.expires > c.now {
		blocked, ends = true, a.expires
		if t := c.tickets["\xff"+k.id]; t != nil && t.named && t.id == k.id && t.name == k.name {
			own = t
		}
	} else if a != nil {
		c.walk(k.name, k.process, false)
		own = c.byID(k.name, k.id)
		queue := c.queue(k.name)
		for _, t := range queue {
			blocked = blocked || !t.shared || !k.shared
		}
		blocked = blocked || k.permits > 0 && int64(len(queue)) >= k.permits
		first := exclusive(queue, whatever)
		for i, t := range queue {
			if e := c.endOr(t, c.now); t.seq <= first && (i == 0 || e < ends) {
				ends = e
			}
		}
	}
	anchor = c.tickets[k.name]
	number := c.micros(ends)
	switch {
	case own != nil && own.held:
		if own.expires <= c.now {
			return c.done(myOutlived, number)
		}
		own.expires = max(own.expires, c.now+k.ttl)
		return c.done(myDone, int64(own.seq)) //nolint:gosec // it fits
	case own != nil:
		return c.done(myQueued, number)
	case blocked && !wait:
		return c.done(myRefused, number)
	case blocked && !c.alive(k.process):
		return c.done(myUnknown, number)
	}
	k.entry = "\xff" + k.id
	if anchor == nil {
		k.entry = k.name
	}
	k.held, k.since = !blocked, c.now
	if k.held {
		k.expires = c.now + k.ttl
	}
	c.insert(k)
	if anchor != nil {
		anchor.queued = true
	}
	if blocked {
		return c.done(myQueued, number)
	}
	return c.done(myDone, int64(k.seq)) //nolint:gosec // it fits
}

// release is the statement release.
func (c *myCall) release(name, id string) myAnswer {
	if a := c.tickets[name]; a != nil && a.named && a.id == id && !a.queued && a.held && a.expires > c.asked {
		delete(c.tickets, name)
		return myAnswer{changed: 1}
	}
	return myAnswer{}
}

// removes is {call_remove}.
func (c *myCall) removes(name, id string, token uint64, process int64) myAnswer {
	anchor := c.tickets[name]
	if a := anchor; a != nil && a.named && a.held && !a.shared && a.expires > c.now && (a.id == id || a.seq == token) {
		var next *myTicket
		for _, k := range c.queue(name) {
			if next == nil && k.seq > a.seq {
				next = k
			}
		}
		if next == nil || !next.shared && c.end(next) > c.now {
			delete(c.tickets, name)
			if next != nil {
				c.grant(next, process)
				c.mine = strings.TrimSuffix(c.mine, "\n")
			}
			return c.done(myDone, 0)
		}
	}
	k := c.byID(name, id)
	if token > 0 {
		k = nil
		for _, t := range c.queue(name) {
			if t.seq == token {
				k = t
			}
		}
	}
	if k == nil {
		return c.done(myNothing, 0)
	}
	if !k.held && k.process != process {
		c.wakes(k.process)
	}
	found := myNothing
	if c.live(k) {
		found = myDone
	}
	c.remove(k)
	if anchor != nil {
		c.walk(name, process, false)
	}
	return c.done(found, 0)
}

// advance is {call_advance}.
func (c *myCall) advance(name string, process int64, sweep bool) myAnswer {
	c.walk(name, process, sweep)
	return c.done(myDone, 0)
}

// owned returns the tickets of a process, or of some with numbers up to last, that have a provisional lease and, with all, those that wait.
func (c *myCall) owned(process, last int64, all bool) (tickets []*myTicket) {
	for _, k := range c.sorted() {
		if k.named && k.process >= process && k.process <= last && (k.fresh || all && !k.held) {
			tickets = append(tickets, k)
		}
	}
	return tickets
}

// sorted returns all rows of tickets, by their numbers.
func (c *myCall) sorted() []*myTicket {
	return slices.SortedFunc(maps.Values(c.tickets), func(a, b *myTicket) int { return cmp.Compare(a.seq, b.seq) })
}

// due is the statement due, of one name.
func (c *myCall) due(name string, process int64) (micros int64, mine bool) {
	queue := c.queue(name)
	for _, k := range queue {
		if !k.held {
			mine = k.process == process
			break
		}
	}
	if len(queue) > 0 && !queue[0].held {
		return -1, mine
	}
	micros = 3600e6
	first := exclusive(queue, whatever)
	for _, k := range queue {
		if k.seq <= first {
			micros = min(micros, max(c.endOr(k, c.now-1)-c.now, -1))
		}
	}
	return micros, mine
}

// stale is the statement stale.
func (c *myCall) stale(after string, most int64) (names []string) {
	for _, k := range c.sorted() {
		var name string
		var old bool
		switch {
		case !k.named:
			name, old = k.entry, len(c.queue(k.entry)) == 0
		case k.held:
			name, old = k.name, k.expires < c.now-1e6
		default:
			name, old = k.name, c.processes[k.process] == nil
		}
		if old && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(int64(len(names)), most)]
}

// alone is the statement alone.
func (c *myCall) alone(names []string) (n uint64) {
	for _, name := range names {
		if a := c.tickets[name]; a != nil && a.named && a.held && !a.queued && a.entry == a.name && a.expires < c.now-1e6 {
			delete(c.tickets, name)
			n++
		}
	}
	return n
}
