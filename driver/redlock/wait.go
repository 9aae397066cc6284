package redlock

import (
	"context"
	"math/bits"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// waiter is a ticket of this process that does not hold yet. Driver.mu guards
// what is not constant. Sets of nodes are bits.
type waiter struct {
	t      *ticket
	wake   chan struct{}
	asking bool      // a proposal is under way
	asked  *proposal // the last
	may    uint64    // nodes on which it may hold
	news   bool      // a node has said that it may hold, since the last attempt
	first  uint64    // nodes whose last answer to a heartbeat was that it may hold
	absent uint64    // nodes that do not know it
	barred uint64    // nodes that do not take its number, since a larger one has held there

	lapsed bool // others may have seen that it was gone
}

// register makes notifications for a ticket arrive from now on.
func (d *Driver) register(t *ticket) *waiter {
	w := &waiter{t: t, wake: make(chan struct{}, 1), asking: true}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.waiter = w
	return w
}

func (d *Driver) depart(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.t.waiter = nil
}

// change changes a waiter, if the ticket is still waited for, and wakes it.
func (d *Driver) change(id string, f func(w *waiter)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiter(id); w != nil {
		f(w)
		w.stir()
	}
}

// waiter returns who waits for a ticket, or nil. With mu held.
func (d *Driver) waiter(id string) *waiter {
	if t := d.tickets[id]; t != nil {
		return t.waiter
	}
	return nil
}

// settle notes that no proposal is under way any more, and that the ticket is queued.
func (d *Driver) settle(w *waiter) {
	d.change(w.t.r.ID, func(w *waiter) { w.asking, w.absent = false, 0 })
}

// attempts notes the proposal that is under way for a ticket, if that is waited for; nil: none is.
func (d *Driver) attempts(t *ticket, p *proposal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.waiter != nil {
		t.waiter.asked = p
	}
}

func (w *waiter) stir() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// ready notes that a ticket may hold on a node. Only news begins an attempt; a node that
// an attempt has given back is not news. If a majority has granted the ticket, mend uses
// what was noted before the grant, and after it the node is repaired here.
func (d *Driver) ready(id string, node int, news bool) {
	d.mu.Lock()
	t := d.tickets[id]
	held := t != nil && t.held()
	var asked *proposal
	if w := d.waiter(id); w != nil && !held {
		asked = w.asked
		w.may |= 1 << node
		w.absent &^= 1 << node
		if w.news = w.news || news; w.news && bits.OnesCount64(w.may) >= d.quorum {
			w.stir()
		}
	}
	d.mu.Unlock()
	switch {
	case held && news:
		d.repair(d.nodes[node], t)
	case asked != nil && news:
		asked.hasNews(node)
	}
}

// wait returns when the ticket is granted, gone, or not wanted any more.
func (d *Driver) wait(ctx context.Context, w *waiter) (driver.Grant, error) {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return driver.Grant{}, redisqueue.Ended(ctx, d.outage(w))
		case <-d.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
		due, lost := d.check(w)
		if lost {
			return driver.Grant{}, driver.ErrLost
		}
		if !due {
			continue
		}
		g, ok, err := d.attempt(ctx, w)
		if ok || err != nil {
			return g, err
		}
	}
}

// check reports whether an attempt is due, which it begins, or the ticket is lost.
func (d *Driver) check(w *waiter) (due, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.t.released {
		return false, true
	}
	without := w.absent | d.brokenOn(w.t)
	if w.first != 0 && w.absent&w.barred != 0 { // its turn has come, and it blocks those behind it
		without |= d.heartbeats.Silent(w.t.r.Name)
	}
	if w.lapsed || bits.OnesCount64(without) > d.minority() {
		w.t.released = true // it is not queued again behind this
		d.dispose(w.t.r.Hold(0))
		return false, true
	}
	if !w.news || bits.OnesCount64(w.may) < d.quorum {
		return false, false
	}
	w.may, w.news, w.asking = 0, false, true
	return true, false
}

// attempt proposes a ticket that may hold on a majority: the nodes have said so one after
// the other. The ticket is granted if it holds on a majority now; otherwise the nodes are
// given back.
func (d *Driver) attempt(ctx context.Context, w *waiter) (g driver.Grant, ok bool, err error) {
	p, err := d.propose(ctx, w.t, w.t.number, orWait, kept)
	if err != nil {
		if why := d.outage(w); ctx.Err() != nil && why != nil {
			err = redisqueue.Ended(ctx, why)
		}
		return g, false, err
	}
	switch p.outcome {
	case granted:
		g, err = d.grant(w.t, p)
		return g, err == nil, err
	case gone:
		return g, false, d.lost(w.t)
	}
	d.settle(w)
	d.yield(w, p)
	return g, false, nil
}

// yield gives back the nodes on which a ticket holds without a majority. The ticket waits
// there again, and the first waiter is notified.
func (d *Driver) yield(w *waiter, p *proposal) {
	sure, perhaps := p.given()
	for _, n := range d.nodes {
		if (sure|perhaps)&(1<<n.index) != 0 {
			d.yieldOn(n, w, p.attempt)
		}
	}
}

func (d *Driver) yieldOn(n *node, w *waiter, attempt int64) {
	n.send(d.yieldCall(w.t, attempt), func(v any, err error) {
		if err == nil && v == int64(1) {
			d.ready(w.t.r.ID, n.index, false)
		}
	})
}

// outage is the error, if any, that keeps a waiter from a majority.
func (d *Driver) outage(w *waiter) error { return d.majorityOf(d.heartbeats.Errs(w.t.r.Name)) }

// keepAlive sends a node a heartbeat.
func (d *Driver) keepAlive(node int, name string, tickets []string, answer func(any, error)) {
	d.nodes[node].send(d.keys.HeartbeatCall(redisqueue.RedlockKeepAlive, []string{d.keys.Main(name)}, d.channel, tickets), answer)
}

// receivedState handles a ticket's state on a node, from the answer to a heartbeat. If the node
// does not know the ticket, for the second time, it was down or has lost it: the ticket
// is queued there again.
func (d *Driver) receivedState(node int, id string, state int64, lapsed bool) {
	d.mu.Lock()
	w := d.waiter(id[1:])
	if w == nil || w.asking {
		d.mu.Unlock()
		return
	}
	w.first &^= 1 << node
	if state == redisqueue.MayHold {
		w.first |= 1 << node
	}
	again, last := w.absent&(1<<node) != 0, w.t.attempts.Load() // no proposal is under way, which this node may have run already
	w.absent &^= 1 << node
	if state == redisqueue.IsGone {
		w.absent |= 1 << node
		w.lapsed = w.lapsed || lapsed // it does not come back
		w.stir()
	}
	d.mu.Unlock()
	switch {
	case state == redisqueue.IsGone && again:
		d.requeue(d.nodes[node], w)
	case state == redisqueue.IsGone:
		d.heartbeats.AskAll(w.t.r.Name)
	case state == redisqueue.MayHold:
		d.ready(w.t.r.ID, node, true)
	case state == redisqueue.IsHeld:
		// A request was run there after the one that should have undone it.
		d.yieldOn(d.nodes[node], w, last)
	}
}

// requeue puts a ticket that a majority has in the queue of one more node.
func (d *Driver) requeue(n *node, w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.t.waiter != w || w.asking || w.t.released || w.lapsed || bits.OnesCount64(w.absent|d.brokenOn(w.t)) > d.minority() {
		return
	}
	c := d.acquireCall(w.t, w.t.r.TTL, w.t.number, w.t.attempts.Load(), justWait, kept)
	// The ticket's release has not been sent, so this comes before it.
	n.send(c, func(v any, err error) {
		if err != nil { // perhaps called at once, with mu held
			return
		}
		switch a, err := parseAcquire(v); {
		case err != nil:
		case a.what == queued && a.ready:
			d.ready(w.t.r.ID, n.index, true)
		case a.what == queued:
			d.change(w.t.r.ID, func(w *waiter) { w.absent &^= 1 << n.index })
		case a.what == refused:
			d.change(w.t.r.ID, func(w *waiter) { w.barred |= 1 << n.index })
		}
	})
}

// notified is called with each notification of a node to this process.
func (d *Driver) notified(node int, text string) {
	if text == "" {
		return
	}
	id := text[1:]
	switch text[0] {
	case redisqueue.NoticeGrant:
		d.ready(id, node, true)
	case redisqueue.NoticeLost:
		id, _, _ = strings.Cut(id, " ")
		d.broken(node, id)
	case redisqueue.NoticeCheck:
		if name, ok := d.keys.Name(id); ok {
			d.heartbeats.Poll(name)
		}
	}
}

// spread is within what time nodes run one Break, though it reaches some late. Of what they have run at longer intervals
// each was told to have failed, and the ticket is where it was removed again.
const spread = 5 * time.Second

// brokenOn returns the nodes that have run a Break of a ticket, of late. With mu held.
func (d *Driver) brokenOn(t *ticket) (nodes uint64) {
	for node, at := range t.breaks {
		if time.Since(at) < max(spread, d.timeout+slack) {
			nodes |= 1 << node
		}
	}
	return nodes
}

// broken notes that a node has run a Break of a ticket of this process. The ticket is lost once so many have that a
// majority may not have it, though some may have got it again meanwhile.
func (d *Driver) broken(node int, id string) {
	d.mu.Lock()
	t := d.tickets[id]
	if t == nil {
		d.mu.Unlock()
		return
	}
	if t.breaks == nil {
		t.breaks = make(map[int]time.Time)
	}
	t.breaks[node] = time.Now()
	if w := t.waiter; w != nil {
		w.stir() // for check
	}
	if !t.held() {
		d.mu.Unlock()
		return
	}
	if bits.OnesCount64(d.brokenOn(t)) <= d.minority() {
		d.mu.Unlock()
		d.recheck(t)
		return
	}
	h := t.r.Hold(t.number)
	delete(d.tickets, id)
	d.mu.Unlock()
	d.dispose(h) // some nodes may not have run the break
	if d.notifyLoss != nil {
		d.notifyLoss(h, redisqueue.ErrRemoved)
	}
}
