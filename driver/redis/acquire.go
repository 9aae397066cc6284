package redis

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// Acquire implements driver.Driver, in one request. Who has waited and is granted
// has a claim that is confirmed by a request more: by the core, or here when
// the wait was long.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.isClosed() {
		return driver.Grant{}, driver.ErrClosed
	}
	if err := d.mayUse(ctx, r.Name, true); err != nil {
		return driver.Grant{}, driver.NoTicket(err) // none was asked for before
	}
	if !r.Wait {
		g, _, err := d.ask(ctx, r, false)
		return g, err
	}
	if !d.listener.Up() {
		// Subscribe before enqueueing, so that the grant cannot be missed. Perhaps
		// there is no need to wait.
		g, _, err := d.ask(ctx, r, false)
		if !errors.Is(err, driver.ErrNotAcquired) {
			return g, err
		}
		if err := d.await(ctx); err != nil {
			return driver.Grant{}, driver.NoTicket(err)
		}
	}
	return d.join(ctx, r)
}

// await waits until the process can be told of a grant.
func (d *Driver) await(ctx context.Context) error {
	if err := d.listener.Await(ctx, d.closing); err != nil {
		if d.isClosed() {
			return driver.ErrClosed
		}
		return redisline.Unavailable(err)
	}
	return nil
}

// ask sends the request once.
func (d *Driver) ask(ctx context.Context, r driver.Request, wait bool) (driver.Grant, answer, error) {
	asked := time.Now()
	c := d.acquireCall(r, wait)
	v, err := d.do(ctx, c)
	if err != nil {
		if noTicket := c.Sent() == 0 || c.Sent() == 1 && redisline.Refused(err); noTicket && d.strays(r.ID) == 0 {
			return driver.Grant{}, answer{}, driver.NoTicket(err)
		}
		d.remember(r.ID, c, err)
		return driver.Grant{}, answer{}, err
	}
	a, err := parseAcquire(v)
	if err == nil && a.granted {
		err = redisline.Unavailable(c.Acked())
	}
	return driver.Grant{Token: a.token, Asked: asked}, a, err
}

// join takes a ticket and waits for its grant.
func (d *Driver) join(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, a, err := d.ask(ctx, r, true)
	if err != nil || a.granted {
		return g, err
	}
	w := d.enter(r, a, g.Asked)
	defer d.leave(w)
	if r.Joined != nil {
		r.Joined()
	}
	return d.wait(ctx, w)
}

// A stray is a ticket that requests on their way may still make.
type stray struct {
	requests int
	at       time.Time
}

// remember notes that requests of an Acquire that failed may still arrive.
func (d *Driver) remember(id string, c *redisline.Call, err error) {
	if !c.Unanswered(err) {
		return
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for old, s := range d.unknown {
		if now.Sub(s.at) > time.Minute { // the core undoes within half of that
			delete(d.unknown, old)
		}
	}
	d.unknown[id] = stray{c.Sent(), now}
}

// strays returns how many requests for a ticket may still arrive.
func (d *Driver) strays(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unknown) == 0 {
		return 0
	}
	return d.unknown[id].requests
}

func (d *Driver) settled(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unknown) > 0 {
		delete(d.unknown, id)
	}
}
