package redlock

import (
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// repair asks one node, in the background, to take part in a grant that a
// majority has made: it was down, has lost its data, or somebody's release came
// late there. The request goes out before the release of the ticket, or not at
// all, and what it sets ends with the lease. While the node does not take it,
// because it is not reached or somebody's try is in the way, it is asked again.
func (d *Driver) repair(n *node, t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := time.Until(t.until)
	if d.held[t.r.ID] != t || left <= 0 {
		return
	}
	c := d.acquireCall(t, left, t.number, t.round.Load(), orLeave, mended)
	c.done = func(v any, err error) { // perhaps told by add, with mu held
		var a answer
		if err == nil {
			a, err = parseAcquire(v)
		}
		if err != nil || a.what != holds && a.what != released {
			n.owe("repair "+t.r.ID, again, func() { d.repair(n, t) })
		}
	}
	n.add(c)
}

// extend notes until when a lease lasts that a majority has renewed.
func (b *renewal) extend(i int) {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if t := b.d.held[b.rs[i].ID]; t != nil {
		if until := b.asked.Add(b.rs[i].TTL); until.After(t.until) {
			t.until = until
		}
	}
}

// mend sets a lease again on nodes that do not have it, while a majority does:
// they were down when it was granted, or have lost it since.
func (b *renewal) mend(i int, on uint64) {
	if on == 0 || b.yes[i] < b.d.quorum {
		return
	}
	b.d.mu.Lock()
	t := b.d.held[b.rs[i].ID]
	b.d.mu.Unlock()
	if t == nil {
		return
	}
	for _, n := range b.d.nodes {
		if on&(1<<n.index) != 0 {
			b.d.repair(n, t)
		}
	}
}

// errForgotten is the cause of a loss that is found out when a node comes back.
var errForgotten = errors.New("a majority of the nodes does not have the lease (any more)")

// reassure looks after all leases when a node is back that was not reached: it
// was down when they were granted, or has lost its data. It gets those that a
// majority has, for what is left of them, long before their next renewal. Those
// that no majority has are told to be lost.
func (d *Driver) reassure() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.held) == 0 {
		return
	}
	d.backs++
	if d.backs > 1 { // it is under way, and begins anew when it has ended
		return
	}
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		for d.reassureAll() {
		}
	}()
}

// reassureAll reports whether it has to be done again: another node has come back
// meanwhile.
func (d *Driver) reassureAll() (again bool) {
	d.mu.Lock()
	backs, now, tell := d.backs, time.Now(), d.tell
	rs := make([]driver.Renewal, 0, len(d.held))
	for _, t := range d.held {
		if left := t.until.Sub(now); left > 0 {
			rs = append(rs, driver.Renewal{Hold: t.r.Hold(t.number), TTL: left})
		}
	}
	d.mu.Unlock()
	for i, err := range d.RenewAll(d.nodes[0].ctx, rs) {
		if errors.Is(err, driver.ErrLost) && tell != nil {
			tell(rs[i].Hold, errForgotten)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.backs -= backs
	return d.backs > 0 && !d.closed
}
