package memory

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Renew implements driver.Driver.
func (d *Driver) Renew(_ context.Context, h driver.Hold, ttl time.Duration) error {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	t, ln := d.find(h, now)
	if t == nil || !t.held {
		return driver.ErrLost
	}
	if until := now.Add(ttl); until.After(t.until) {
		t.until = until // line.soonest may stay behind: it is a lower bound
		ln.arm()
	}
	return nil
}

// find returns a live ticket and its line.
func (d *Driver) find(h driver.Hold, now time.Time) (*ticket, *line) {
	if ln := d.s.lines[h.Name]; ln != nil {
		ln.settle(now)
	}
	t := d.s.tickets[h.ID]
	if t == nil || t.req.Name != h.Name {
		return nil, nil
	}
	return t, d.s.lines[h.Name]
}

// Release implements driver.Driver.
func (d *Driver) Release(_ context.Context, h driver.Hold) error {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	t, ln := d.find(h, now)
	if t == nil {
		return driver.ErrLost
	}
	ln.drop(t)
	ln.settle(now)
	return nil
}

// Break implements driver.Breaker.
func (d *Driver) Break(_ context.Context, name string, token uint64) error {
	t := d.breakTicket(name, token)
	if t == nil {
		return driver.ErrLost
	}
	if t.held && t.d.tell != nil {
		t.d.tell(t.req.Hold(t.token), errRemoved)
	}
	return nil
}

func (d *Driver) breakTicket(name string, token uint64) *ticket {
	now := time.Now()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	ln := d.s.lines[name]
	if ln == nil {
		return nil
	}
	ln.settle(now)
	for _, q := range []*queue{&ln.holders, &ln.waiters} {
		for t := q.first; t != nil; t = t.next {
			if t.token == token {
				ln.drop(t)
				ln.settle(now)
				return t
			}
		}
	}
	return nil
}
