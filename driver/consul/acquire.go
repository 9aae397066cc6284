package consul

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver. Uncontended it is one request: a
// transaction that creates the ticket and returns the queue as it then stands.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	t, queue, err := d.enter(ctx, &r)
	if err != nil {
		return driver.Grant{}, d.failedAcquire(r.ID, err)
	}
	if standing(queue, t.number) {
		err = d.confirm(ctx, t, &r)
	} else {
		err = d.wait(ctx, t, &r, queue)
	}
	var g driver.Grant
	if err == nil {
		g, err = d.grant(t, &r)
	}
	if err != nil {
		return driver.Grant{}, d.failedAcquire(r.ID, err)
	}
	return g, nil
}

// enter queues a ticket and returns the queue, or nil when the ticket is known
// to be blocked. A request that does not wait is queued only if it is granted
// with that.
func (d *Driver) enter(ctx context.Context, r *driver.Request) (t *ticket, queue []entry, err error) {
	ttl, err := d.sessionTTL(r)
	if err != nil {
		return nil, nil, err
	}
	ctx, done := d.enters(ctx, r.ID)
	defer done()
	if err := d.agree(ctx, true); err != nil {
		return nil, nil, failure(ctx, err)
	}
	err = persist(ctx, func() error {
		if r.Wait {
			t, queue, err = d.joinOnce(ctx, *r, ttl)
		} else {
			t, queue, err = d.tryOnce(ctx, *r, ttl)
		}
		return err
	})
	return t, queue, err
}

// failedAcquire is the error of an Acquire that failed. Nobody waits for the
// ticket any more, so that it does not keep its session alive. If the request that
// creates it was not sent, or was refused, there is none.
func (d *Driver) failedAcquire(id string, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[id]
	switch {
	case t != nil && (t.unsure || t.number > 0):
		d.unwait(t)
		return err
	case t != nil:
		d.detachLocked(t)
	}
	switch {
	case errors.Is(err, driver.ErrNotAcquired):
		return err
	default:
		return driver.NoTicket(err)
	}
}

// persist calls f until it succeeds: again while an agent that can be reached
// says that it cannot serve at the moment, and once its session turns out to be
// gone.
func persist(ctx context.Context, f func() error) error {
	var last error
	for delay := time.Duration(0); ; delay = backoff(delay) {
		if delay > 0 && !sleep(ctx, delay) {
			return ended(ctx, last)
		}
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ended(ctx, better(ctx, err, last))
		case !passing(err) && !errors.Is(err, errSession):
			return mark(err)
		}
		last = err
	}
}

// sessionTTL is the kind of session for a lease.
func (d *Driver) sessionTTL(r *driver.Request) (kind, error) {
	ttl := max(r.TTL, r.MinHold, d.opts.minTTL)
	if ttl > maxTTL {
		return kind{}, fmt.Errorf("%w: TTL %v is more than Consul's longest session of %v", driver.ErrUnsupported, ttl, maxTTL)
	}
	return kind{ttl: ttl, minHold: r.MinHold > 0}, nil
}

// since is how recently a session must have been renewed to carry a new lease.
// A lease that nobody renews begins with a renewal of its own; one that is
// renewed anyway may have begun a part of its TTL earlier.
func (d *Driver) since(r driver.Request, part time.Duration) time.Time {
	now := time.Now()
	if !r.Renewed || r.MinHold > 0 {
		return now
	}
	return now.Add(-max(r.TTL, d.opts.minTTL) / part)
}

// joinOnce queues a ticket. The queue that it returns is nil when the ticket is
// known to be blocked.
func (d *Driver) joinOnce(ctx context.Context, r driver.Request, k kind) (*ticket, []entry, error) {
	t, err := d.attach(ctx, &ticket{name: r.Name, id: r.ID, shared: r.Shared}, k, d.since(r, fresh))
	if err != nil {
		return nil, nil, err
	}
	e := entry{pair: pair{Key: t.key, Session: t.first.id}, value: valueOf(r, k.ttl)}
	blocked := d.blocksLocally(r) // no need to read what may be a long queue
	e, queue, err := d.store.put(ctx, r.Name, e, !blocked)
	if err != nil {
		return nil, nil, d.notCreated(t, err)
	}
	d.numbered(t, e)
	if blocked {
		queue = nil
	}
	return t, queue, nil
}

// numbered notes the number of a ticket that was created, now or by an earlier
// request that was not answered.
func (d *Driver) numbered(t *ticket, e entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.number, t.modify = e.CreateIndex, e.ModifyIndex
}

// notCreated settles a ticket whose creation was not confirmed.
func (d *Driver) notCreated(t *ticket, err error) error {
	if unknown(err) {
		d.setUnsure(t)
		return err
	}
	if errors.Is(err, errSession) {
		d.sessionOver(t.first)
		return err
	}
	if !d.created(t) {
		d.detach(t)
	}
	return err
}

// grant makes the answer for a ticket that is granted: its lease counts from the
// last renewal of the session.
func (d *Driver) grant(t *ticket, r *driver.Request) (driver.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] != t {
		return driver.Grant{}, errSessionLost
	}
	d.holdLocked(t)
	if r.MinHold > 0 {
		t.keep = time.Now().Add(r.MinHold)
	}
	return driver.Grant{Token: t.number, Asked: t.s.asked}, nil
}

// wait waits in the queue until the ticket is granted. There may be very many who
// do: this function and those that it waits in are small, so that a waiter has
// a small stack.
func (d *Driver) wait(ctx context.Context, t *ticket, r *driver.Request, known []entry) error {
	w, q, err := d.begin(t, r, known)
	if err != nil {
		return err
	}
	err = d.await(ctx, w, q)
	q.leave(w)
	if err != nil {
		return err
	}
	ctx, done := d.bind(ctx)
	defer done()
	return d.ensure(ctx, t, d.since(*r, 2))
}

// begin adds a ticket to those that wait here.
func (d *Driver) begin(t *ticket, r *driver.Request, known []entry) (*waiter, *queue, error) {
	w := &waiter{t: t, number: t.number, shared: r.Shared, limit: r.Limit, done: make(chan error, 1)}
	q, err := d.enqueue(w, known)
	if err == nil && r.Joined != nil {
		r.Joined()
	}
	return w, q, err
}

// await returns when the ticket is granted or lost, or ctx or the driver ends.
func (d *Driver) await(ctx context.Context, w *waiter, q *queue) error {
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ended(ctx, q.lastError())
	case <-d.ctx.Done():
		return driver.ErrClosed
	}
}

// confirm sees to it that the session of one who was granted at once lives for
// the whole time that a MinHold asks for. It is fresh enough for any other
// lease.
func (d *Driver) confirm(ctx context.Context, t *ticket, r *driver.Request) error {
	if r.MinHold == 0 {
		return nil
	}
	ctx, done := d.bind(ctx)
	defer done()
	return d.ensure(ctx, t, d.since(*r, 2))
}

// backoff grows a delay between tries.
func backoff(delay time.Duration) time.Duration {
	return min(max(2*delay, 25*time.Millisecond), time.Second)
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
