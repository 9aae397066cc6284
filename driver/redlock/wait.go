package redlock

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// waiter is a ticket of this process that does not hold yet. Driver.mu guards
// what is not constant.
type waiter struct {
	t      *ticket
	room   *room // nil until it stands in line
	wake   chan struct{}
	may    uint64 // nodes on which it may hold
	absent uint64 // nodes that do not know it
	news   bool   // a node has told that it may hold, since the last attempt
	asking bool   // an attempt is under way
	broken uint64 // nodes that told that it was removed by force
}

// register makes notices for a ticket arrive from now on.
func (d *Driver) register(t *ticket) *waiter {
	w := &waiter{t: t, wake: make(chan struct{}, 1), asking: true}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters[t.r.ID] = w
	return w
}

// enter begins the heartbeats of a ticket that stands in line.
func (d *Driver) enter(w *waiter, v *vote) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := w.t.r.Name
	rm := d.rooms[name]
	if rm == nil {
		rm = newRoom(name, w.t.key, len(d.nodes))
		d.rooms[name] = rm
	}
	rm.every = min(rm.every, max(redisline.Quickest, w.t.r.TTL))
	w.room = rm
	w.asking = false
	rm.waiters[w.t.r.ID] = w
	v.mu.Lock()
	for i, a := range v.answers {
		if v.heard[i] && a.what == inLine {
			rm.look(i, a.outlook)
		}
	}
	v.mu.Unlock()
	d.plan(rm)
	w.stir()
}

func (d *Driver) depart(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiters, w.t.r.ID)
	rm := w.room
	if rm == nil {
		return
	}
	delete(rm.waiters, w.t.r.ID)
	delete(rm.away, w)
	if len(rm.waiters) == 0 && d.rooms[rm.name] == rm {
		delete(d.rooms, rm.name)
		rm.alarm.Stop()
	}
}

func (w *waiter) stir() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// ready notes that a ticket may hold on a node. Only news begins an attempt:
// what an attempt has given back is none.
func (d *Driver) ready(w *waiter, node int, news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.may |= 1 << node
	w.absent &^= 1 << node
	w.news = w.news || news
	if w.news && bits.OnesCount64(w.may) >= d.quorum {
		w.stir()
	}
}

// wait returns when the ticket is granted, gone, or not wanted any more.
func (d *Driver) wait(ctx context.Context, w *waiter) (driver.Grant, error) {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return driver.Grant{}, redisline.Ended(ctx, d.outage(w.room))
		case <-d.closing:
			return driver.Grant{}, driver.ErrClosed
		}
		due, lost := d.look(w)
		switch {
		case lost:
			d.dispose(w.t.r.Hold(0), w.t.r.TTL)
			return driver.Grant{}, driver.ErrLost
		case !due:
			continue
		}
		g, ok, err := d.attempt(ctx, w)
		if ok || err != nil {
			return g, err
		}
	}
}

// look tells whether an attempt is due, which it begins, or the ticket gone.
func (d *Driver) look(w *waiter) (due, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if most := len(d.nodes) - d.quorum; bits.OnesCount64(w.absent|w.broken) > most {
		return false, true
	}
	if !w.news || bits.OnesCount64(w.may) < d.quorum {
		return false, false
	}
	w.may, w.news, w.asking = 0, false, true
	return true, false
}

// attempt asks for the grant of a ticket that may hold on a majority, as the
// nodes have told one after the other. What they give counts if it is a
// majority at once; else it is given back.
func (d *Driver) attempt(ctx context.Context, w *waiter) (g driver.Grant, ok bool, err error) {
	v, err := d.vote(ctx, w.t, w.t.number, orWait, kept)
	if err != nil {
		if ctx.Err() != nil && d.outage(w.room) != nil {
			err = redisline.Ended(ctx, d.outage(w.room))
		}
		return g, false, err
	}
	switch v.verdict {
	case granted:
		return d.grant(w.t, v), true, nil
	case gone:
		return g, false, driver.ErrLost
	}
	d.mu.Lock()
	w.asking = false
	w.absent = 0 // it was put in line again
	d.mu.Unlock()
	d.yield(w, v)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan(w.room)
	w.stir()
	return g, false, nil
}

// outage is what keeps a room's waiters from hearing of a majority, if anything.
func (d *Driver) outage(rm *room) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	down := 0
	for _, err := range rm.errs {
		if err != nil {
			down++
		}
	}
	if down <= len(d.nodes)-d.quorum {
		return nil
	}
	return d.unreached(rm.errs, func(i int) bool { return rm.errs[i] == nil })
}

// deaf says why so few nodes can tell this process of anything that they are no
// majority, or returns nil.
func (d *Driver) deaf() error {
	errs := make([]error, len(d.nodes))
	up := 0
	for i, n := range d.nodes {
		if n.listener.Up() {
			up++
		} else if errs[i] = n.listener.Err(); errs[i] == nil {
			errs[i] = errors.New("no answer to SUBSCRIBE")
		}
	}
	if up >= d.quorum {
		return nil
	}
	return d.unreached(errs, func(i int) bool { return errs[i] == nil })
}

// hear is called with each notice of a node to this process.
func (d *Driver) hear(node int, notice string) {
	if notice == "" {
		return
	}
	id := notice[1:]
	switch notice[0] {
	case noticeReady:
		d.mu.Lock()
		w, t := d.waiters[id], d.held[id]
		d.mu.Unlock()
		switch {
		case t != nil: // a majority has granted it already
			d.repair(d.nodes[node], t)
		case w != nil:
			d.ready(w, node, true)
		}
	case noticeGone:
		d.removed(id, 1<<node)
	case noticeLost:
		d.hearLoss(node, id)
	}
}

// removed notes that nodes have removed a ticket though it waits.
func (d *Driver) removed(id string, nodes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiters[id]; w != nil {
		w.broken |= nodes
		w.stir()
	}
}

// rejoin puts a ticket in line again on a node that does not know it: the node
// was down, or has lost it.
func (d *Driver) rejoin(n *node, w *waiter) {
	c := d.acquireCall(w.t, w.t.r.TTL, w.t.number, 0, justJoin, kept)
	c.done = func(v any, err error) {
		if err != nil { // perhaps told by add, with mu held
			return
		}
		a, err := parseAcquire(v)
		if err != nil || a.what != inLine {
			return
		}
		d.mu.Lock()
		w.absent &^= 1 << n.index
		d.mu.Unlock()
		if a.ready {
			d.ready(w, n.index, true)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiters[w.t.r.ID] == w && !w.asking { // its release has not gone out
		n.add(c)
	}
}

func (d *Driver) beatCall(rm *room, asked []*waiter) *call {
	args := make([]any, 0, 1+len(asked))
	args = append(args, d.channel)
	for _, w := range asked {
		args = append(args, redisline.Kind(w.t.r.Shared)+w.t.r.ID)
	}
	return &call{script: d.keys.Script(redisline.RedlockBeat), keys: []string{rm.key}, args: args}
}

// recheck asks after all tickets: notices may have been missed.
func (d *Driver) recheck() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, rm := range d.rooms {
		rm.all = true
		d.beatAt(rm, time.Now())
	}
}
