package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// What a process does about one node that does not have of a ticket what it should:
//
//	verb      the node                                                  message
//	giveBack  holds a try that no majority granted                      release, of its attempt
//	yield     holds a waiter that no majority granted                   yield
//	requeue   has no ticket of a waiter that a majority has queued      propose: wait, its number kept
//	repair    lacks a ticket that a majority has granted                propose: hold, for the rest of the lease
//	mend      repair of all nodes that lack a grant or a renewed lease
//	reassure  was not reached for a while, or has run a Break           renew; then mend
//	askAgain  has failed to answer a grant or a renewal                 reassure, a second later
//	dispose   may have a ticket that is lost                            release

// Release implements driver.Driver: one request to each node, all at once. It returns
// when a majority has answered. A node that is not reached is asked again for as long as
// the lease may last there.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if d.life.Closed() {
		return driver.ErrClosed
	}
	d.forget(h.ID)
	r := d.removal(h, 0)
	return d.vote(ctx, "release",
		func(node int, err error) { d.released(d.nodes[node], r, err) },
		func(n *node) *redisqueue.Call { return d.releaseCall(n, r) })
}

// removal is a ticket that is to be removed from nodes. They are asked again until a time when it is gone by itself.
type removal struct {
	h     driver.Hold
	last  int64 // what later attempts have done stays; 0: nothing does
	until time.Time
}

// lingers is how long a node that is not reached may keep a ticket that waits there: as long as it takes its process for
// alive. A ticket that holds there, though its process may not know that, stays for as long as its lease.
const lingers = time.Minute

// longestLinger bounds that: a node that is back after more than that may keep a lease until it ends.
const longestLinger = 10 * time.Minute

func (d *Driver) removal(h driver.Hold, last int64) removal {
	return removal{h: h, last: last, until: time.Now().Add(min(max(lingers, time.Duration(d.longest.Load())), longestLinger))}
}

// mayLast notes the length of a lease that nodes are asked for.
func (d *Driver) mayLast(ttl time.Duration) {
	for longest := d.longest.Load(); int64(ttl) > longest && !d.longest.CompareAndSwap(longest, int64(ttl)); {
		longest = d.longest.Load()
	}
}

// forget forgets a ticket that is to be removed. If it does not hold yet, it is not proposed again, and an answer to a
// proposal that is under way does not grant it.
func (d *Driver) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[id]
	if t == nil {
		return
	}
	if t.held() {
		delete(d.tickets, id)
	}
	t.released = true
	if w := t.waiter; w != nil {
		w.stir()
	}
}

// reassurance is what a node is owed by askAgain.
const reassurance = "reassure"

// again is how long after a failed request a node is asked again.
const again = time.Second

// releaseOn removes a ticket from one node in the background.
func (d *Driver) releaseOn(n *node, r removal) {
	n.send(d.releaseCall(n, r), func(_ any, err error) { d.released(n, r, err) })
}

// released handles a node's answer to a release, and asks again if there was none.
func (d *Driver) released(n *node, r removal, err error) {
	switch {
	case err == nil && r.last == 0:
		n.unanswered.Settled(r.h.ID)
	case err == nil:
	case time.Now().Add(again).Before(r.until) && !d.life.Closed():
		n.owe(fmt.Sprint("release ", r.h.ID, r.last), func() { d.releaseOn(n, r) })
	}
}

// lost is the error of a ticket that a node does not take any more, since a release of it was there first. Other nodes may
// have it yet.
func (d *Driver) lost(t *ticket) error {
	d.dispose(t.r.Hold(0))
	return driver.ErrLost
}

// dispose removes what is left of a ticket that is lost, in the background.
func (d *Driver) dispose(h driver.Hold) {
	r := d.removal(h, 0)
	for _, n := range d.nodes {
		d.releaseOn(n, r)
	}
}

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.renew(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// perRequest is how many leases one request renews.
const perRequest = 100

// RenewAll implements driver.BatchRenewer. All requests go out together.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	var group sync.WaitGroup
	for from := 0; from < len(rs); from += perRequest {
		to := min(from+perRequest, len(rs))
		group.Go(func() { copy(errs[from:to], d.renew(ctx, rs[from:to])) })
	}
	group.Wait()
	return errs
}

// renew renews some leases with one request to each node.
func (d *Driver) renew(ctx context.Context, rs []driver.Renewal) []error {
	if d.life.Closed() {
		return slices.Repeat([]error{driver.ErrClosed}, len(rs))
	}
	for _, r := range rs {
		d.mayLast(r.TTL)
	}
	asked, answered := time.Now(), false
	r := newRound(d, func(v any) ([]int64, error) { return redisqueue.Ints("renew", v, len(rs)) })
	yes := func(i int) int { return r.count(func(held []int64) bool { return held[i] == 1 }) }
	kept := func(i int) bool { return yes(i) >= d.quorum }
	lost := func(i int) bool { return r.answered()-yes(i) > d.minority() }
	r.enough = func() bool {
		for i := range rs {
			if !kept(i) && !lost(i) {
				return false
			}
		}
		return true
	}
	// mend sets leases again on a node that does not have them, while a majority does: it
	// was down when they were granted, or has lost them since.
	mend := func(node int, held []int64) {
		for i := range rs {
			if t := d.holds(rs[i].ID); t != nil && held[i] == 0 && kept(i) {
				d.repair(d.nodes[node], t)
			}
		}
	}
	r.each = func(node int, held []int64, err error) {
		switch {
		case err == nil && answered:
			mend(node, held)
		case err != nil && !denied(err):
			d.askAgain(d.nodes[node])
		}
	}
	err := r.ask(ctx, func(*node) *redisqueue.Call { return d.renewCall(rs) })
	r.mu.Lock()
	defer r.mu.Unlock()
	answered = true
	errs := make([]error, len(rs))
	for i := range rs {
		switch {
		case kept(i):
			d.extend(rs[i], asked)
		case lost(i):
			errs[i] = driver.ErrLost
			if d.holds(rs[i].ID) != nil { // a ticket that never held stays
				d.forget(rs[i].ID)
				d.dispose(rs[i].Hold)
			}
		case err != nil:
			errs[i] = err
		default:
			errs[i] = r.failure()
		}
	}
	for node, held := range r.answers {
		if r.errs[node] == nil {
			mend(node, held)
		}
	}
	return errs
}

// Shorten implements driver.Shortener. A node that is not reached keeps the lease as it was. The ticket is forgotten: no
// renewal that is under way, and nothing that a node is sent which is back, lengthens the lease any more.
func (d *Driver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	d.mu.Lock()
	if t := d.tickets[h.ID]; t != nil && t.held() {
		delete(d.tickets, h.ID)
	}
	d.mu.Unlock()
	keys, ms := []string{d.keys.Main(h.Name)}, d.millis(left)
	return d.vote(ctx, "shorten", nil, func(*node) *redisqueue.Call { return d.keys.Call(redisqueue.RedlockShorten, keys, h.ID, ms) })
}

// extend notes the end of a lease that a majority has renewed.
func (d *Driver) extend(r driver.Renewal, asked time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tickets[r.ID]; t != nil && t.held() {
		if until := asked.Add(r.TTL); until.After(t.until) {
			t.until = until
		}
	}
}

// holds returns the ticket of a lease, or nil.
func (d *Driver) holds(id string) *ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tickets[id]; t != nil && t.held() {
		return t
	}
	return nil
}

// repair asks one node, in the background, to hold a ticket that a majority has granted.
// The node was down, has lost its data, or got another's release late. The request goes
// out before the release of the ticket, or not at all, and the lease that it sets ends
// with the ticket's. It is sent again if the node is not reached, or another's try is in
// the way.
func (d *Driver) repair(n *node, t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := time.Until(t.until)
	if d.tickets[t.r.ID] != t || left <= 0 {
		return
	}
	c := d.acquireCall(t, left, t.number, t.attempts.Load(), orLeave, mended)
	n.send(c, func(v any, err error) { // perhaps called at once, with mu held
		if errors.Is(err, redisqueue.ErrClosed) {
			return
		}
		var a answer
		if err == nil {
			a, err = parseAcquire(v)
		}
		if err != nil || a.what != holds && a.what != released {
			n.owe("repair "+t.r.ID, func() { d.repair(n, t) })
		}
	})
}

// errForgotten is the cause of a loss that is detected when a node comes back.
var errForgotten = errors.New("a majority of the nodes does not have the lease (any more)")

// askAgain renews all leases a second after a grant or a renewal has failed on a node, if
// the node is back by then. The request may have been lost, or have failed only because it was queued behind
// one from before.
func (d *Driver) askAgain(n *node) {
	n.owe(reassurance, func() {
		if n.listener.Up() {
			d.life.Go(d.reassure)
		}
	})
}

// reassure renews all leases when a node is reached again: it was down when they were
// granted, or has lost its data. The node gets the leases that a majority has, for the
// rest of their time, long before their next renewal. A lease that no majority has is
// reported as lost.
func (d *Driver) reassure() {
	d.mu.Lock()
	ts := slices.Collect(maps.Values(d.tickets))
	d.mu.Unlock()
	d.reassureOf(ts, errForgotten)
}

// recheck asks all nodes, in the background, for a ticket that few have notified a Break of: one that lacks the ticket has run
// the Break too, perhaps, and notifies nobody.
func (d *Driver) recheck(t *ticket) {
	d.life.Go(func() { d.reassureOf([]*ticket{t}, redisqueue.ErrRemoved) })
}

// reassureOf renews the leases of those tickets that hold, for the rest of their time. cause is that of a loss.
func (d *Driver) reassureOf(ts []*ticket, cause error) {
	rs := make([]driver.Renewal, 0, len(ts))
	for _, t := range ts {
		d.mu.Lock()
		if d.tickets[t.r.ID] == t && time.Until(t.until) > 0 {
			rs = append(rs, driver.Renewal{Hold: t.r.Hold(t.number), TTL: rest})
		}
		d.mu.Unlock()
	}
	for i, err := range d.RenewAll(d.ctx, rs) {
		if errors.Is(err, driver.ErrLost) && d.notifyLoss != nil {
			d.notifyLoss(rs[i].Hold, cause)
		}
	}
}
