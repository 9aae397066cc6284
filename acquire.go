package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements Locker.
func (c *Client) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	k, err := c.obtain(ctx, name, false, opts)
	if err != nil {
		return nil, c.fail("acquire", name, err)
	}
	return k, nil
}

// TryAcquire implements Locker.
func (c *Client) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	k, err := c.obtain(ctx, name, true, opts)
	if err != nil {
		return nil, c.fail("try to acquire", name, err)
	}
	return k, nil
}

// obtain re-enters or queues.
func (c *Client) obtain(ctx context.Context, name string, try bool, opts []Option) (*Lock, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	a := &attempt{parent: ctx, c: c, name: name}
	if err := a.r.read(c, opts); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.work.Done()

	a.begun = time.Now()
	defer a.close()
	try = try || a.r.limited && a.r.wait == 0
	if k := c.outer(ctx, name, &a.r); k != nil {
		inner, err := c.reenter(a, k.lease, &a.r)
		if !errors.Is(err, errEnded) {
			return inner, err
		}
	}
	if a.r.owned {
		return c.obtainOwned(a, try)
	}
	return c.queue(a, try)
}

// begin counts an operation that Close has to wait for; it reports false when
// Close has begun. The caller ends it with c.work.Done.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Add(1)
	return true
}

// queue takes a ticket and waits for its grant, again when the ticket was lost
// in an outage.
func (c *Client) queue(a *attempt, try bool) (*Lock, error) {
	req := c.driverRequest(a, try)
	if !try {
		req.Joined = a.inLine
	}
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		req.ID = c.newID()
		k, err := c.once(a, req)
		if err == nil || !errors.Is(err, driver.ErrLost) || try || a.Err() != nil {
			return k, err
		}
		c.tell(context.Background(), Event{Kind: EventRejoined, Name: req.Name, Owner: req.Owner, Shared: req.Shared, Err: err})
		if !sleep(a, delay) {
			return nil, a.explain(err)
		}
	}
}

// once asks the store with one ticket, and leaves none behind when that fails.
func (c *Client) once(a *attempt, req driver.Request) (*Lock, error) {
	g, err := c.d.Acquire(a, req)
	if err == nil {
		return c.adopt(a, req, g)
	}
	switch {
	case errors.Is(err, driver.ErrNotAcquired):
		return nil, ErrNotAcquired
	case errors.Is(err, driver.ErrLost) && a.Err() == nil:
		return nil, err
	}
	c.undo(req.Hold(0))
	return nil, a.explain(err)
}

func (c *Client) driverRequest(a *attempt, try bool) driver.Request {
	r := &a.r
	return driver.Request{
		Name: a.name, Owner: a.owner(), Note: r.note,
		Shared: r.shared, Limit: r.limit,
		TTL: c.storeTTL(r.ttl), Renewed: !r.fixed, Wait: !try,
	}
}

// storeTTL is the lease to ask the store for: no shorter than it can give.
func (c *Client) storeTTL(ttl time.Duration) time.Duration {
	return max(ttl, driver.BoundsOf(c.d, ttl).MinTTL)
}

// owner is whom the ticket is for.
func (a *attempt) owner() string {
	if a.r.owned {
		return a.r.owner
	}
	return a.c.process
}

// waiting is called, once, when an attempt begins to wait in line.
func (c *Client) waiting(a *attempt) {
	if a.e != nil {
		close(a.e.queued)
	}
	c.tell(context.Background(), Event{Kind: EventWaiting, Name: a.name, Owner: a.owner(), Shared: a.r.shared})
}

// adopt makes a lease of a grant, unless it is over already or the Client was
// closed meanwhile.
func (c *Client) adopt(a *attempt, req driver.Request, g driver.Grant) (*Lock, error) {
	now := time.Now()
	l, k := newLease(c, &a.r, req, g, now)
	c.mu.Lock()
	if c.closed || !now.Before(l.validUntil) {
		closed := c.closed
		c.mu.Unlock()
		c.undo(l.hold)
		if closed {
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("%w: the answer came %v after it was asked for, when the lease of %v was over",
			driver.ErrLost, now.Sub(g.Asked).Round(time.Millisecond), l.ttl)
	}
	l.entry = a.e
	if a.e != nil {
		a.e.lease = l
	}
	c.leases[l.hold.ID] = l
	c.plan(l)
	c.mu.Unlock()
	if len(c.observers) > 0 {
		c.tell(context.Background(), l.event(EventAcquired, now.Sub(a.begun), nil))
	}
	return k, nil
}

// undo removes a ticket that a failed acquisition may have left. It waits for
// that briefly and goes on in the background when the store does not answer;
// what it does not reach expires. A ticket that is not there may be yet to
// come, by a request that overtook nobody: it is looked for once more.
func (c *Client) undo(h driver.Hold) {
	done := make(chan struct{})
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.finishing, undoBound)
		defer cancel()
		err := c.remove(ctx, h)
		close(done)
		if !errors.Is(err, driver.ErrLost) {
			return
		}
		late := time.NewTimer(undoLate)
		defer late.Stop()
		select {
		case <-late.C:
		case <-c.closing:
		}
		_ = c.remove(ctx, h) // not there: as wanted; not reached: expires
	})
	t := time.NewTimer(undoWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// remove asks the store to release a ticket until it has answered or ctx ends.
// A ticket that is gone after an unanswered request was removed by that.
func (c *Client) remove(ctx context.Context, h driver.Hold) error {
	unanswered := false
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		err := c.d.Release(ctx, h)
		switch {
		case err == nil, errors.Is(err, driver.ErrClosed):
			return err
		case errors.Is(err, driver.ErrLost):
			if unanswered {
				err = nil
			}
			return err
		}
		unanswered = true
		if !sleep(ctx, delay) {
			return err
		}
	}
}

// sleep waits for d; it reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
