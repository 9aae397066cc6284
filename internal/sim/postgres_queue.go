package sim

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
)

// What the functions of driver/postgres do that take tickets and remove them, one after the other, as functions.sql says.

// pgTicket is a row of the table of tickets.
type pgTicket struct {
	name                      string
	slot, token               int64
	id                        string
	process                   int64
	queued, held, provisional bool
	shared                    bool
	permits, ttl              int64
	since, expires            int64 // µs of the database's clock
	owner, note               string
}

// pgProcess is a row of the table of processes.
type pgProcess struct{ heartbeat, alive int64 }

// pgTables is what a database has.
type pgTables struct {
	tickets   map[string][]*pgTicket // by name, in the order of their slots
	processes map[int64]*pgProcess
	token     int64 // the last one
}

// pgNotice is a notice for a process.
type pgNotice struct {
	process int64
	text    string
}

// pgCall is one transaction: a call of a function.
type pgCall struct {
	*pgTables
	now     int64 // of the database's clock, in µs
	notices []pgNotice
}

const never = math.MaxInt64

func (c *pgCall) notify(process int64, text string) {
	if n := (pgNotice{process, text}); !slices.Contains(c.notices, n) {
		c.notices = append(c.notices, n)
	}
}

// put inserts a ticket.
func (c *pgCall) put(t *pgTicket) {
	c.tickets[t.name] = append(c.tickets[t.name], t)
	c.order(t.name)
}

func (c *pgCall) order(name string) {
	slices.SortFunc(c.tickets[name], func(a, b *pgTicket) int { return cmp.Compare(a.slot, b.slot) })
}

// delete removes a ticket.
func (c *pgCall) delete(t *pgTicket) {
	c.tickets[t.name] = slices.DeleteFunc(c.tickets[t.name], func(u *pgTicket) bool { return u == t })
	if len(c.tickets[t.name]) == 0 {
		delete(c.tickets, t.name)
	}
}

// find returns the first ticket of a name that fits; nil: none does.
func (c *pgCall) find(name string, fits func(*pgTicket) bool) *pgTicket {
	if i := slices.IndexFunc(c.tickets[name], fits); i >= 0 {
		return c.tickets[name][i]
	}
	return nil
}

func waits(t *pgTicket) bool { return !t.held }

func (c *pgCall) byID(name, id string) *pgTicket {
	return c.find(name, func(t *pgTicket) bool { return t.id == id })
}

// alive is until when a process lives; less than any time if it has no row.
func (c *pgCall) alive(process int64) int64 {
	if p := c.processes[process]; p != nil {
		return p.alive
	}
	return math.MinInt64
}

// live reports whether a ticket has not expired.
func (c *pgCall) live(t *pgTicket) bool {
	if t.held {
		return t.expires > c.now
	}
	return c.alive(t.process) > c.now
}

// micros is the time until at, between 0 and an hour.
func (c *pgCall) micros(at int64) int64 {
	switch {
	case at > c.now+3600e6:
		return 3600e6
	case at <= c.now:
		return 0
	}
	return at - c.now
}

// nextToken is {next_token}.
func (c *pgCall) nextToken() int64 {
	if near := c.now - 10_000; c.token+1 < near {
		c.token = c.now + 1
	} else {
		c.token++
	}
	return c.token
}

// grant makes a waiting ticket a holder, and returns its notice.
func (c *pgCall) grant(t *pgTicket) string {
	p := c.processes[t.process]
	t.held, t.provisional, t.since = true, true, c.now
	t.expires = min(c.now+t.ttl, p.alive)
	if !t.shared {
		t.slot = 0
	}
	return fmt.Sprintf("g %s %d %d", t.id, t.token, p.heartbeat)
}

// pgWalk is a walk through a queue, from its head as far as tickets may be granted.
type pgWalk struct {
	ahead   int64 // live tickets passed
	blocked bool  // an exclusive one has ended it
	due     int64 // when the first of them may expire; -1: there is something to do
	mine    string
}

// walk is {walk}. With dry it changes nothing.
func (c *pgCall) walk(name string, permits, process int64, dry bool) *pgWalk {
	w := &pgWalk{due: never}
	most := int64(-1)
	for _, t := range slices.Clone(c.tickets[name]) {
		ends := c.alive(t.process)
		if t.held {
			ends = t.expires
		}
		grantable := !t.held && ends > c.now && (t.shared && w.ahead < t.permits || !t.shared && w.ahead == 0)
		if dry && (ends <= c.now || grantable) {
			w.due = -1
			break
		}
		if ends <= c.now {
			c.reap(t)
			continue
		}
		if t.shared && most < 0 {
			most = c.mostPermits(name, permits)
		}
		if grantable {
			if news := c.grant(t); t.process == process {
				w.mine += "\n" + news
			} else {
				c.notify(t.process, news)
			}
			ends = t.expires
		}
		w.due = min(w.due, ends)
		w.ahead++
		if w.blocked = !t.shared; w.blocked || most >= 0 && w.ahead >= most {
			break
		}
	}
	c.order(name)
	return w
}

// mostPermits is how many shared tickets of a name there may be.
func (c *pgCall) mostPermits(name string, most int64) int64 {
	for _, t := range c.tickets[name] {
		if t.shared {
			most = max(most, t.permits)
		}
	}
	return most
}

// reap removes an expired ticket, and its process before it.
func (c *pgCall) reap(t *pgTicket) {
	if !t.held {
		delete(c.processes, t.process)
	}
	c.delete(t)
}

// acquire is {acquire}.
func (c *pgCall) acquire(t *pgTicket, wait bool, until int64) string {
	if c.now > until {
		return fmt.Sprint("t ", c.now)
	}
	t.token, t.since = c.nextToken(), c.now
	if len(c.tickets[t.name]) == 0 {
		return c.hold(t)
	}
	old := c.byID(t.name, t.id)
	if head := c.tickets[t.name][0]; wait && head.slot == 0 {
		head.queued = true
		if old == nil && head.expires > c.now && c.alive(t.process) > c.now {
			return c.queue(t, head.expires)
		}
	}
	wasHeld := old != nil && old.held
	if wasHeld && old.expires > c.now {
		old.expires = max(old.expires, c.now+t.ttl)
		return fmt.Sprint("g ", old.token)
	}
	w := c.walk(t.name, t.permits, t.process, false)
	if !wasHeld {
		if old = c.byID(t.name, t.id); old != nil && old.held {
			old.expires = c.now + t.ttl
			return fmt.Sprint("g ", old.token) + w.mine
		} else if old != nil {
			return fmt.Sprint("w ", c.micros(w.due)) + w.mine
		}
	}
	switch {
	case !w.blocked && (t.shared && w.ahead < t.permits || w.ahead < 1):
		return c.hold(t) + w.mine
	case !wait:
		return "n" + w.mine
	case c.alive(t.process) <= c.now:
		return "p" + w.mine
	}
	return c.queue(t, w.due) + w.mine
}

// hold inserts a ticket that is granted at once.
func (c *pgCall) hold(t *pgTicket) string {
	if t.held, t.expires = true, c.now+t.ttl; t.shared {
		t.slot = t.token
	}
	c.put(t)
	return fmt.Sprint("g ", t.token)
}

// queue inserts a ticket that waits in a queue which is due then.
func (c *pgCall) queue(t *pgTicket, due int64) string {
	t.queued, t.slot = true, t.token
	c.put(t)
	return fmt.Sprint("w ", c.micros(due))
}

// release is {release}, with {hand_over}.
func (c *pgCall) release(name, id string, process int64) string {
	t := c.byID(name, id)
	if t == nil {
		return "l"
	}
	answer := "r"
	if t.held && t.expires <= c.now {
		answer = "l"
	}
	c.delete(t)
	if t.slot != 0 || t.queued {
		if t.slot == 0 && c.handOver(name, process, &answer) {
			return answer
		}
		answer += c.walk(name, 0, process, false).mine
	}
	return answer
}

// handOver grants an exclusive ticket that is the next; false if several may be next, or another.
func (c *pgCall) handOver(name string, process int64, answer *string) bool {
	if len(c.tickets[name]) == 0 {
		return false
	}
	next := c.tickets[name][0]
	if next.shared || c.alive(next.process) <= c.now {
		return false
	}
	if news := c.grant(next); next.process == process {
		*answer += "\n" + news
	} else {
		c.notify(next.process, news)
	}
	return true
}

// breaks is {break}.
func (c *pgCall) breaks(name string, token, process int64) string {
	t := c.find(name, func(t *pgTicket) bool { return t.token == token })
	if t == nil {
		return "l"
	}
	answer := "l"
	if c.live(t) {
		answer = "r"
	}
	c.delete(t)
	c.notify(t.process, fmt.Sprintf("l %s %d %s", t.id, token, hex.EncodeToString([]byte(name))))
	return answer + c.walk(name, 0, process, false).mine
}

// String names all tickets and processes.
func (d *pgTables) String() string {
	var all []string
	for _, tickets := range d.tickets {
		for _, t := range tickets {
			all = append(all, fmt.Sprintf("%q: token %d of %x", t.name, t.token, t.process))
		}
	}
	for id := range d.processes {
		if id != 0 {
			all = append(all, fmt.Sprintf("process %x", id))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
