package sim

import (
	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// What is checked of a queue that is shown: D15 of package driver.

// inspected checks the answer to a question that was asked when the call began: it is in order, the rule of grants allows who holds, and
// it has who has held all the time, and not whose release was confirmed before. Redlock shows also what may be on a majority, judging by
// the nodes that answer: of two tickets with one number, each of which is on a minority of these, at most one is. ZooKeeper shows what a server knows that was the leader and has not noticed that it is cut off.
func (o *oracle) inspected(c *call, q locker.Queue, err error) {
	if err != nil || c.p.isDead() || len(o.w.servers) > 1 && o.w.slow == 0 || o.w.most > 0 && o.w.disturbed(c.p.name, c.begun, c.begun) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all, shown := make([]driver.Ticket, 0, len(q.Tickets)), make(map[uint64]bool)
	for i, t := range q.Tickets {
		if all = append(all, driver.Ticket{Shared: t.Shared, Limit: t.Limit}); i > 0 && (t.Token < q.Tickets[i-1].Token || t.Token == q.Tickets[i-1].Token && o.w.slow == 0) {
			o.w.fail("%s: the queue of %s is not in order: %+v", c.t.name, q.Name, q.Tickets)
		}
		if shown[t.Token] = true; t.Held && (t.Remaining < 0 || o.w.slow == 0 && !driver.Grantable(all, i)) {
			o.w.fail("%s: the queue of %s shows that %d holds, which cannot be: %+v", c.t.name, q.Name, t.Token, q.Tickets)
		}
	}
	for _, h := range o.holds[q.Name] {
		if h.at.Before(c.begun) && h.alive() && !shown[h.token] && !o.excused(h) {
			o.w.fail("%s: the queue of %s lacks %v: %+v", c.t.name, q.Name, h, q.Tickets)
		}
	}
	for _, other := range o.calls {
		if p := other.parts[q.Name]; p != nil && p.hold != nil && p.hold.released && p.hold.gone.Before(c.begun) && shown[p.hold.token] && o.w.slow == 0 && !o.w.remembered(q.Name) {
			o.w.fail("%s: the queue of %s shows %v, whose release was confirmed before: %+v", c.t.name, q.Name, p.hold, q.Tickets)
		}
	}
}
