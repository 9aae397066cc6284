package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver. Uncontended it is one request: a
// transaction that creates the ticket and returns the queue as it then stands.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	t, line, err := d.enter(ctx, &r)
	if err != nil {
		return driver.Grant{}, d.failedAcquire(r.ID, err)
	}
	if standing(line, t.number) {
		err = d.confirm(ctx, t, &r)
	} else {
		err = d.wait(ctx, t, &r, line)
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
func (d *Driver) enter(ctx context.Context, r *driver.Request) (t *ticket, line []entry, err error) {
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
			t, line, err = d.joinOnce(ctx, *r, ttl)
		} else {
			t, line, err = d.tryOnce(ctx, *r, ttl)
		}
		return err
	})
	return t, line, err
}

// failedAcquire is the error of an Acquire that failed. Nobody waits for the
// ticket any more, so that it does not keep its session alive. If the request that
// creates it was not sent, or was refused, there is none.
func (d *Driver) failedAcquire(id string, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[id]
	switch {
	case t != nil && (t.doubt || t.number > 0):
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
	name := d.keys.line(r.Name)
	ops := []op{
		keyOp(api.KVCheckNotExists, d.keys.barred(t.home.id, r.ID)),
		lockOp(t.key, t.home.id, newValue(r, k.ttl)),
		keyOp(api.KVDelete, d.keys.guard(r.Name, r.Shared)),
		keyOp(api.KVGetTree, name),
	}
	blocked := d.blocksLocally(r)
	if blocked { // no need to read what may be a long queue
		ops = ops[:3]
	}
	pairs, err := d.writes.commit(ctx, name, ops...)
	if err != nil {
		return nil, nil, d.notJoined(t, err)
	}
	if len(pairs) == 0 || pairs[0].Key != t.key {
		d.setDoubt(t)
		return nil, nil, fmt.Errorf("the ACL token may not read %q", t.key)
	}
	if err := d.numbered(t, pairs[0]); err != nil {
		return nil, nil, err
	}
	if blocked {
		return t, nil, nil
	}
	if len(pairs) == 2 && pairs[1].Key == t.key {
		// Alone in line: what it holds is known without reading it.
		own := value{ID: r.ID, Shared: r.Shared, Limit: r.Limit}
		return t, []entry{{pair: pairs[1], value: own}}, nil
	}
	line, err := parseLine(pairs[1:])
	return t, line, err
}

// numbered notes the number of a ticket that was created, now or by an earlier
// request that was not answered.
func (d *Driver) numbered(t *ticket, p pair) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	again := t.doubt || t.number > 0
	if !again && p.CreateIndex != p.ModifyIndex {
		// It would have somebody else's place in line.
		t.doubt = true
		return fmt.Errorf("key %q was there before its ticket", t.key)
	}
	t.number, t.modify = p.CreateIndex, p.ModifyIndex
	return nil
}

// notJoined settles a ticket whose creation was not confirmed.
func (d *Driver) notJoined(t *ticket, err error) error {
	if unknown(err) {
		d.setDoubt(t)
		return err
	}
	var refused *rollback
	if errors.As(err, &refused) {
		if _, barred := refused.failed(0); barred {
			err = errReleased
		} else if what, _ := refused.failed(1); strings.Contains(what, "invalid session") {
			d.bury(t.s)
			return fmt.Errorf("%w: %w", errSession, err)
		}
	}
	d.mu.Lock()
	doubt := t.doubt || t.number > 0
	d.mu.Unlock()
	if !doubt {
		d.detach(t)
	}
	return err
}

// standing tells whether the ticket with the number is granted in the line.
func standing(line []entry, number uint64) bool {
	for i, e := range line {
		if e.CreateIndex == number {
			return driver.Grantable(tickets(line[:i+1]), i)
		}
	}
	return false
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
	w, l, err := d.stand(t, r, known)
	if err != nil {
		return err
	}
	err = d.await(ctx, w, l)
	l.leave(w)
	if err != nil {
		return err
	}
	ctx, done := d.bind(ctx)
	defer done()
	return d.ensure(ctx, t, d.since(*r, 2))
}

// stand adds a ticket to those that wait here.
func (d *Driver) stand(t *ticket, r *driver.Request, known []entry) (*waiter, *line, error) {
	w := &waiter{t: t, number: t.number, shared: r.Shared, limit: r.Limit, done: make(chan error, 1)}
	l, err := d.enqueue(w, known)
	if err == nil && r.Joined != nil {
		r.Joined()
	}
	return w, l, err
}

// await returns when the ticket is granted or lost, or ctx or the driver ends.
func (d *Driver) await(ctx context.Context, w *waiter, l *line) error {
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ended(ctx, l.trouble())
	case <-d.ctx.Done():
		return driver.ErrClosed
	}
}

// confirm sees to it that the session of one who was granted at once lives for
// the whole time that a MinHold asks for. The keeper has kept it fresh enough
// for any other lease.
func (d *Driver) confirm(ctx context.Context, t *ticket, r *driver.Request) error {
	if r.MinHold == 0 {
		return nil
	}
	ctx, done := d.bind(ctx)
	defer done()
	return d.ensure(ctx, t, d.since(*r, 2))
}
