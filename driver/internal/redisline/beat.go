package redisline

import "time"

// Times of waiting tickets.
const (
	Liveness  = 3 * time.Second        // a process that shows no life for so long is taken for dead; LIVENESS in the scripts
	Heartbeat = Liveness / 3           // at the most, for each name it waits for
	Quickest  = 100 * time.Millisecond // heartbeat for short leases
)

// Intervals at which the first waiter's process asks after a foreign holder.
const (
	PollFirst = 5 * time.Millisecond
	PollMost  = 200 * time.Millisecond
)

// An Alarm goes off at the earliest of the times that it was set for. The
// methods are called with its owner's lock held.
type Alarm struct {
	timer *time.Timer
	due   time.Time // zero: it is not set
}

// Set has f called at a time, unless it is set for an earlier one. f is always
// the same, and begins with Rung.
func (a *Alarm) Set(t time.Time, f func()) {
	if !a.due.IsZero() && !t.Before(a.due) {
		return
	}
	a.due = t
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(t), f)
		return
	}
	a.timer.Reset(time.Until(t))
}

// Rung notes that it went off.
func (a *Alarm) Rung() { a.due = time.Time{} }

// Stop keeps it from going off.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// sample is how many tickets a heartbeat asks after.
const sample = 16

// Sample returns the waiters that a heartbeat asks after: all, or some, so that
// each has its turn by chance.
func Sample[W any](waiters map[string]*W, all bool) []*W {
	most := sample
	if all {
		most = len(waiters)
	}
	asked := make([]*W, 0, min(most, len(waiters)))
	for _, w := range waiters {
		if len(asked) == most {
			break
		}
		asked = append(asked, w)
	}
	return asked
}
