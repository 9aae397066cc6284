package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// nest is what a context made by Lock.Context carries, under the Client as key:
// the handle it was made of, and those of the contexts around it.
type nest struct {
	k     *Lock
	outer *nest
}

// ownerKey is what an explicit owner re-enters by.
type ownerKey struct{ name, owner string }

// entry is how an explicit owner stands to a name: acquiring it, or holding it.
type entry struct {
	key    ownerKey
	shared bool
	queued chan struct{} // closed when the ticket stands in line
	ready  chan struct{} // closed when the acquisition has ended
	lease  *lease        // guarded by Client.mu; nil while acquiring
}

// errEnded says that what was to be re-entered is held no more.
var errEnded = errors.New("not held any more")

// outer returns the live handle on name that ctx carries. A request that
// names another owner is somebody else's and stands in line.
func (c *Client) outer(ctx context.Context, name string, r *request) *Lock {
	n, _ := ctx.Value(c).(*nest)
	for ; n != nil; n = n.outer {
		if n.k.lease.hold.Name != name || r.owned && r.owner != n.k.lease.owner {
			continue
		}
		if n.k.Err() == nil {
			return n.k
		}
	}
	return nil
}

// obtainOwned re-enters what the owner holds, joins another goroutine's
// acquisition for the same owner, or begins one.
func (c *Client) obtainOwned(a *attempt, try bool) (*Lock, error) {
	key := ownerKey{a.name, a.r.owner}
	for {
		c.mu.Lock()
		e := c.owned[key]
		if e == nil {
			e = &entry{key: key, shared: a.r.shared, queued: make(chan struct{}), ready: make(chan struct{})}
			c.owned[key] = e
			c.mu.Unlock()
			return c.beginOwned(a, e, try)
		}
		l := e.lease
		c.mu.Unlock()
		if e.shared && !a.r.shared {
			return nil, ErrUpgrade
		}
		if l != nil {
			k, err := c.reenter(a, l, &a.r)
			if !errors.Is(err, errEnded) {
				return k, err
			}
			continue
		}
		if err := e.await(a, try); err != nil {
			return nil, err
		}
	}
}

// beginOwned acquires for e and tells those who wait for it.
func (c *Client) beginOwned(a *attempt, e *entry, try bool) (*Lock, error) {
	a.e = e
	k, err := c.queue(a, try)
	if err != nil {
		c.mu.Lock()
		delete(c.owned, e.key)
		c.mu.Unlock()
	}
	close(e.ready)
	return k, err
}

// await waits until e's acquisition has ended; a try only while the store is
// being asked.
func (e *entry) await(a *attempt, try bool) error {
	var queued <-chan struct{}
	if try {
		queued = e.queued
	} else {
		a.inLine() // behind another attempt, which bounds what it asks of the store
	}
	select {
	case <-e.ready:
		return nil
	case <-queued:
		return ErrNotAcquired
	case <-a.Done():
		return a.explain(context.Cause(a))
	}
}

// reenter adds a handle to a lease, lengthening it where the request wants
// more than is left.
func (c *Client) reenter(ctx context.Context, l *lease, r *request) (*Lock, error) {
	c.expire(l)
	c.mu.Lock()
	if l.state != held {
		c.mu.Unlock()
		return nil, errEnded
	}
	if l.hold.Shared && !r.shared {
		c.mu.Unlock()
		return nil, ErrUpgrade
	}
	renewed := l.renewers > 0
	k := l.addHandle(&Lock{}, r)
	short := r.ttl > l.ttl || !renewed && time.Until(l.validUntil) < r.ttl-c.graceOf(r.ttl)
	c.mu.Unlock()
	if short {
		if err := c.extend(ctx, l, r.ttl); err != nil {
			return nil, errors.Join(err, ignore(k.Release(ctx), ErrLost))
		}
	}
	c.mu.Lock()
	l.ttl = max(l.ttl, r.ttl)
	if l.state == held {
		c.plan(l)
	}
	c.mu.Unlock()
	if len(c.observers) > 0 {
		c.tell(context.Background(), l.event(EventReentered, 0, nil))
	}
	return k, nil
}

// extend renews a lease now, out of schedule, for at least ttl.
func (c *Client) extend(ctx context.Context, l *lease, ttl time.Duration) error {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, joinBound)
	defer cancel()
	err := c.d.Renew(ctx, l.hold, c.storeTTL(ttl))
	if errors.Is(err, driver.ErrLost) {
		c.lose(l, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.state == lost:
		return ErrLost
	case l.state != held:
		return ErrReleased
	case err == nil:
		l.claimed = l.claimed && ttl < l.ttl
		l.renewedAt(asked, ttl, time.Now())
		c.plan(l)
	}
	return err
}

// ignore returns err unless it is the sentinel.
func ignore(err, sentinel error) error {
	if errors.Is(err, sentinel) {
		return nil
	}
	return err
}
