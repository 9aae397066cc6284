package etcd

import (
	"time"
)

// keeper keeps the leases of waiting tickets alive; the core renews those of
// held ones. Its goroutine runs while somebody waits.
type keeper struct {
	running bool // guarded by Driver.mu
	wake    chan struct{}
}

// keep sees to it that a lease is kept alive from now on. With mu held.
func (d *Driver) keep(l *lease) {
	l.waiting++
	if l.waiting > 1 {
		return
	}
	if !d.keeper.running {
		d.keeper.running = d.spawn(d.keepWaiters)
		return
	}
	select {
	case d.keeper.wake <- struct{}{}:
	default:
	}
}

func (d *Driver) keepWaiters() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-d.keeper.wake:
		case <-d.ctx.Done():
			return
		}
		due, next, more := d.dueLeases()
		if !more {
			return
		}
		each(due, d.keepWaiting)
		timer.Reset(time.Until(next))
	}
}

// dueLeases returns the leases to keep alive now, and when to look again; false:
// nobody waits any more.
func (d *Driver) dueLeases() (due []*lease, next time.Time, more bool) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.leases {
		if l.waiting == 0 {
			continue
		}
		at := l.sent.Add(l.ttl / 3)
		if l.retryAt.After(at) {
			at = l.retryAt
		}
		if !at.After(now) {
			due = append(due, l)
			at = now.Add(retryFirst) // to find out how it went
		}
		if !more || at.Before(next) {
			next, more = at, true
		}
	}
	d.keeper.running = more
	return due, next, more
}

func (d *Driver) keepWaiting(l *lease) {
	d.mu.Lock()
	ttl := l.ttl
	d.mu.Unlock()
	ctx, cancel := d.bounded(min(max(ttl/3, time.Second), answerBound))
	defer cancel()
	if err := d.keepAlive(ctx, l); err != nil {
		d.mu.Lock()
		l.retryAt = time.Now().Add(min(max(ttl/30, retryFirst), retryMost))
		d.mu.Unlock()
	}
}
