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
	d.keeper.look()
}

// look has the goroutine look at the leases again.
func (k *keeper) look() {
	select {
	case k.wake <- struct{}{}:
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
		next, more := d.keepDue()
		if !more {
			return
		}
		timer.Reset(time.Until(next))
	}
}

// keepDue starts the keep-alives that are due and waits for none of them, so that
// one that hangs keeps no other lease waiting. It returns when to look again; false:
// nobody waits any more.
func (d *Driver) keepDue() (next time.Time, more bool) {
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
		if l.busy { // it wakes the keeper when it is done
			at = now.Add(answerBound)
		} else if !at.After(now) {
			l.busy = d.spawn(func() { d.keepWaiting(l) })
			at = now.Add(answerBound)
		}
		if !more || at.Before(next) {
			next, more = at, true
		}
	}
	d.keeper.running = more
	return next, more
}

func (d *Driver) keepWaiting(l *lease) {
	d.mu.Lock()
	ttl := l.ttl
	d.mu.Unlock()
	ctx, cancel := d.bounded(min(max(ttl/3, time.Second), answerBound))
	defer cancel()
	err := d.keepAlive(ctx, l)
	d.mu.Lock()
	defer d.mu.Unlock()
	l.busy = false
	if err != nil {
		l.retryAt = time.Now().Add(min(max(ttl/30, retryFirst), retryMost))
	}
	d.keeper.look()
}
