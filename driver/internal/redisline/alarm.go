package redisline

import "time"

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
