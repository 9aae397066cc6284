package etcd

import (
	"context"

	"github.com/lockerproject/locker/driver"
)

// waitFor waits until a ticket that stands in line is granted.
func (d *Driver) waitFor(ctx context.Context, t *ticket, r driver.Request) (driver.Grant, error) {
	if r.Joined != nil {
		r.Joined()
	}
	select {
	case <-t.ended:
		return d.grantOf(ctx, t)
	case <-ctx.Done():
		return driver.Grant{}, d.stopped(ctx)
	case <-d.ctx.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

// grantOf is the grant of a ticket that is held, or ErrLost. The lease counts
// from its last renewal.
func (d *Driver) grantOf(ctx context.Context, t *ticket) (driver.Grant, error) {
	if err := d.fresh(ctx, t); err != nil {
		return driver.Grant{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.state != held {
		return driver.Grant{}, driver.ErrLost
	}
	return driver.Grant{Token: uint64(t.rev), Asked: t.lease.sent}, nil
}

// wait makes a ticket a waiter: its lease is kept alive and its line watched.
// With mu held.
func (d *Driver) wait(t *ticket) {
	ln := t.line
	t.state = waiting
	t.ended = make(chan struct{})
	if ln.waiters == nil {
		ln.waiters = make(map[int64]*ticket)
	}
	ln.waiters[t.rev] = t
	d.keep(t.lease)
	if ln.watch == nil {
		ln.watch = newWatch(ln)
		d.spawn(ln.watch.run)
	}
	ln.watch.idle.Stop()
	ln.watch.look()
}

// rest is called when a waiter has left: the watch stays for a while, since
// who has waited for a name is likely to wait for it again. With mu held.
func (ln *line) rest() {
	if len(ln.waiters) == 0 && ln.watch != nil {
		ln.watch.idle.Reset(linger)
	}
}

// settle grants what can be granted. With mu held.
func (ln *line) settle() {
	w := ln.watch
	if w == nil || len(ln.waiters) == 0 {
		return
	}
	defer w.look()
	limitOf := func(rev int64) int {
		if t := ln.waiters[rev]; t != nil {
			return t.limit
		}
		return 0
	}
	for _, rev := range w.view.granted(limitOf) {
		t := ln.waiters[rev]
		switch {
		case t == nil: // held already, or somebody else's
		case rev <= w.view.snap:
			ln.d.granted(t)
		default: // the first, as far as is known: the watch reads the line
			return
		}
	}
}
