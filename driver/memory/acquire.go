package memory

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	t, err := d.take(r)
	if err != nil {
		return driver.Grant{}, err
	}
	if t.done == nil { // granted at once
		return driver.Grant{Token: t.token, Asked: t.asked}, nil
	}
	if r.Joined != nil {
		r.Joined()
	}
	select {
	case <-t.done:
		return d.woken(t)
	case <-ctx.Done():
		return driver.Grant{}, context.Cause(ctx)
	case <-d.closing:
		return driver.Grant{}, driver.ErrClosed
	}
}

// take joins the line, or finds the ticket there.
func (d *Driver) take(r driver.Request) (*ticket, error) {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.closed {
		return nil, driver.ErrClosed
	}
	if ln := d.s.lines[r.Name]; ln != nil {
		ln.settle(now)
	}
	if t := d.s.tickets[r.ID]; t != nil {
		return t, nil
	}
	ln := d.s.line(r.Name)
	if !r.Wait && !ln.free(r) {
		return nil, driver.ErrNotAcquired
	}
	return ln.join(d, r, now), nil
}

// woken answers for a ticket that waits no more.
func (d *Driver) woken(t *ticket) (driver.Grant, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if !t.held {
		return driver.Grant{}, driver.ErrLost
	}
	return driver.Grant{Token: t.token, Asked: t.asked}, nil
}
