package locker

import "time"

// Deadline returns until when the lock is trusted to be held if no further renewal succeeds:
// the end of the validity, which is before the end of the store's lease by the safety margin.
// Each renewal moves it. For several locks (AcquireAll) it is the earliest. It is the zero
// time when the lock is lost or this handle is released.
//
// It is for work that hands the lock's right on to somebody who cannot see its context, such
// as another process: that one ends by the Deadline unless it is told a later one.
func (k *Lock) Deadline() time.Time {
	if k.Err() != nil {
		return time.Time{}
	}
	if k.lease != nil {
		return k.c.leases.deadline(k.lease)
	}
	var first time.Time
	for _, m := range k.members {
		until := m.Deadline()
		if until.IsZero() {
			return time.Time{}
		}
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// deadline is the end of the validity as a time that Go's monotonic clock can tell: the time
// that the machine was suspended since the lease was granted is over already.
func (ls *leases) deadline(l *lease) time.Time {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.state != held {
		return time.Time{}
	}
	now := time.Now() // its wall clock is today's, which may have been set since the lease was renewed
	return now.Add(l.validUntil.Add(-ls.clock.offset()).Sub(now))
}
