package redis

import (
	"errors"
	"maps"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// queuedFor is how long a ticket stays in the queue after it was queued, at least: acquire.lua makes its
// process count as alive for half a second less than Liveness. The rest is for clocks that differ in speed.
const queuedFor = redisqueue.Liveness - 600*time.Millisecond

// releaseAgain is after how long a release that hands the lock over is sent again. The server knows of the next holder's
// grant only when it has one of them.
const releaseAgain = 300 * time.Millisecond

// errHanded is the error of a renewal that the server may have had before the release that hands the lock over.
var errHanded = errors.New("the release of the ticket before it is not answered")

// mayHand reports whether a ticket may have the lock before the server grants it: that needs no
// confirmation, and its lease is as long as a provisional one, at least.
func (d *Driver) mayHand(r driver.Request) bool {
	return !d.durable && !r.Shared && r.MinHold == 0 && r.TTL >= redisqueue.Liveness
}

// handOn grants the next ticket of this process when one is released, if it is directly behind that. It returns its ID, or "".
func (d *Driver) handOn(h driver.Hold) (next string) {
	w, until := d.handoff.Release(h.ID)
	d.mu.Lock()
	delete(d.handed, h.ID)
	if w != nil {
		d.handed[w.ID] = true
	}
	d.mu.Unlock()
	if w == nil {
		return ""
	}
	d.notify(w.ID, notice{until: until})
	return w.ID
}

// handedOn notes that the server has granted a ticket that handOn has returned.
func (d *Driver) handedOn(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.handed, id)
}

// unsure returns the tickets that the server may not have granted yet.
func (d *Driver) unsure() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.handed) == 0 {
		return nil
	}
	return maps.Clone(d.handed)
}
