package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
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

// handed tells of a ticket that was handed the lock. The server has granted it when all releases are answered that have handed
// the lock on until then.
type handed struct {
	by       string        // the ticket that was released
	answered chan struct{} // closed when that release is answered
	before   *handed       // how the other one got the lock; nil: the server had granted it
	at       time.Time
}

func (h *handed) isAnswered() bool {
	select {
	case <-h.answered:
		return true
	default:
		return false
	}
}

// skip leaves out the releases that are answered.
func (h *handed) skip() *handed {
	for h != nil && h.isAnswered() {
		h = h.before
	}
	return h
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
		d.handed[w.ID] = &handed{h.ID, make(chan struct{}), d.handed[h.ID].skip(), time.Now()}
	}
	d.mu.Unlock()
	if w != nil {
		d.notify(w.ID, notice{provisional: lease})
	}
	return w != nil
}

// releaseAnswered notes that releases are answered, by which the next tickets may have been handed the lock.
func (d *Driver) releaseAnswered(holds []driver.Hold) {
	for _, h := range holds {
		d.unanswered.Settled(h.ID)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.handed {
		if slices.ContainsFunc(holds, func(r driver.Hold) bool { return r.ID == h.by }) && !h.isAnswered() {
			close(h.answered)
		}
	}
	for next, h := range d.handed {
		if h.skip() == nil || time.Since(h.at) > time.Minute { // the core releases within half of that
			delete(d.handed, next)
		}
	}
}

// sure waits until the server has granted a ticket.
func (d *Driver) sure(ctx context.Context, id string) error {
	d.mu.Lock()
	h := d.handed[id].skip()
	d.mu.Unlock()
	for ; h != nil; h = h.before {
		select {
		case <-h.answered:
		case <-d.life.Done():
			return driver.ErrClosed
		case <-ctx.Done():
			return redisqueue.Ended(ctx, errHanded)
		}
	}
	return nil
}

// unsure returns the tickets that the server may not have granted yet.
func (d *Driver) unsure() map[string]*handed {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.handed)
}
