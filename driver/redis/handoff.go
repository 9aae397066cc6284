package redis

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// queuedFor is how long a ticket stays in the queue after it was requested, at least: acquire.lua makes its
// process count as alive for half a second less than Liveness. The rest is for clocks that differ in speed.
const queuedFor = redisqueue.Liveness - 600*time.Millisecond

// mayBeHanded is for how long after it was queued a ticket may be handed the lock; package handoff takes less, 0.4 s. A Break
// leaves it alone for so long: the process would not know of it before it is notified.
const mayBeHanded = 500 * time.Millisecond

// errHanded is the error of a renewal that the server may have had before the release that hands the lock over.
var errHanded = driver.Unavailable(errors.New("the release of the ticket before it is not answered"))

// mayHand reports whether a ticket may have the lock before the server has granted it: that needs no
// confirmation, and its lease is as long as a provisional one, at least.
func (d *Driver) mayHand(r driver.Request) bool {
	return !d.durable && !r.Shared && r.MinHold == 0 && r.TTL >= redisqueue.Liveness
}

// handed is a ticket that was handed the lock and is not sure: the server has granted it when the release of the ticket before
// is answered, and that ticket is sure.
type handed struct {
	id            string
	sure          chan struct{} // closed when it is
	answered      bool          // the release of the ticket before is
	before, after *handed       // that ticket and the next one, if they are not sure
}

// handOn hands the lock of a ticket that is being released to the next one, if that is of this process and directly behind
// it. It reports whether it has.
func (d *Driver) handOn(h driver.Hold) bool {
	d.mu.Lock()
	if own := d.waiters[h.ID]; own != nil {
		own.released = true
	}
	w, lease := d.handoff.Release(h.ID)
	if w != nil {
		next := &handed{id: w.ID, sure: make(chan struct{}), before: d.handed[h.ID]}
		if next.before != nil {
			next.before.after = next
		}
		d.handed[w.ID], d.handOns[h.ID] = next, next
	}
	d.mu.Unlock()
	if w != nil {
		d.notify(w.ID, notice{provisional: lease})
	}
	return w != nil
}

// releaseAnswered notes that the release of a ticket is answered, by which the next one may have been handed the lock.
func (d *Driver) releaseAnswered(id string) {
	d.unanswered.Settled(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.handOns[id]
	if h == nil {
		return
	}
	delete(d.handOns, id)
	for h.answered = true; h != nil && h.answered && h.before == nil; h = h.after {
		delete(d.handed, h.id)
		close(h.sure)
		if h.after != nil {
			h.after.before = nil
		}
	}
}

// sure waits until the server has granted a ticket.
func (d *Driver) sure(ctx context.Context, id string) error {
	d.mu.Lock()
	h := d.handed[id]
	d.mu.Unlock()
	if h == nil {
		return nil
	}
	select {
	case <-h.sure:
		return nil
	case <-d.life.Done():
		return driver.ErrClosed
	case <-ctx.Done():
		return redisqueue.Ended(ctx, errHanded)
	}
}

// unsure returns the tickets that the server may not have granted yet.
func (d *Driver) unsure() map[string]*handed {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.handed)
}
