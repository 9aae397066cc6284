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
// transaction that creates the ticket and returns the line as it then stands.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	t, line, err := d.enter(ctx, &r)
	if err != nil {
		return driver.Grant{}, err
	}
	if standing(line, t.number) {
		return d.grant(t)
	}
	return d.wait(ctx, t, &r, line)
}

// enter puts a ticket into the line and returns the line, or nil when the
// ticket is known to be blocked. A ticket that is not to wait does not stay
// blocked.
func (d *Driver) enter(ctx context.Context, r *driver.Request) (*ticket, []entry, error) {
	ttl, err := d.sessionTTL(r.TTL)
	if err != nil {
		return nil, nil, err
	}
	t, line, err := d.join(ctx, *r, ttl)
	if err != nil {
		if d.ticketOf(r.ID) == nil {
			d.unborn.Add(r.ID) // not sent, or refused
		}
		return nil, nil, err
	}
	if r.Wait || standing(line, t.number) {
		return t, line, nil
	}
	if err := d.remove(ctx, r.Hold(t.number)); err != nil && !errors.Is(err, driver.ErrLost) {
		return nil, nil, err
	}
	return nil, nil, driver.ErrNotAcquired
}

// sessionTTL is the TTL of the session for a lease.
func (d *Driver) sessionTTL(ttl time.Duration) (time.Duration, error) {
	if ttl > maxTTL {
		return 0, fmt.Errorf("%w: TTL %v is more than Consul's longest session of %v", driver.ErrUnsupported, ttl, maxTTL)
	}
	return max(ttl, d.opts.minTTL), nil
}

// since is how recently a session must have been renewed to carry a new lease.
// A lease that nobody renews begins with a renewal of its own; one that is
// renewed anyway may have begun a part of its TTL earlier.
func (d *Driver) since(r driver.Request, part time.Duration) time.Time {
	now := time.Now()
	if !r.Renewed {
		return now
	}
	return now.Add(-max(r.TTL, d.opts.minTTL) / part)
}

// join puts a ticket into the line. It tries again while an agent that can be
// reached says that it cannot serve at the moment, and once its session turns
// out to be gone. The line is nil when the ticket is known to be blocked.
func (d *Driver) join(ctx context.Context, r driver.Request, ttl time.Duration) (*ticket, []entry, error) {
	ctx, done := d.bind(ctx)
	defer done()
	var last error
	for delay := time.Duration(0); ; delay = backoff(delay) {
		if delay > 0 && !sleep(ctx, delay) {
			return nil, nil, ended(ctx, last)
		}
		t, line, err := d.joinOnce(ctx, r, ttl)
		switch {
		case err == nil:
			return t, line, nil
		case ctx.Err() != nil:
			return nil, nil, ended(ctx, err)
		case !passing(err) && !errors.Is(err, errSession):
			return nil, nil, err
		}
		last = err
	}
}

func (d *Driver) joinOnce(ctx context.Context, r driver.Request, ttl time.Duration) (*ticket, []entry, error) {
	t, err := d.attach(ctx, &ticket{name: r.Name, id: r.ID, shared: r.Shared}, ttl, d.since(r, fresh))
	if err != nil {
		return nil, nil, err
	}
	name := d.keys.line(r.Name)
	ops := []op{
		keyOp(api.KVCheckNotExists, d.keys.barred(t.home.id, r.ID)),
		lockOp(t.key, t.home.id, newValue(r, ttl)),
		keyOp(api.KVGetTree, name),
	}
	blocked := d.blocksLocally(r)
	if blocked { // no need to read what may be a long line
		ops = ops[:2]
	}
	pairs, err := d.writes.commit(ctx, name, ops...)
	if err != nil {
		return nil, nil, d.notJoined(t, err)
	}
	if len(pairs) == 0 || pairs[0].Key != t.key {
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
		d.mu.Lock()
		t.doubt = true
		d.mu.Unlock()
		return err
	}
	var refused *rollback
	if errors.As(err, &refused) {
		if _, barred := refused.failed(0); barred {
			err = fmt.Errorf("%w: the ticket was released before", driver.ErrLost)
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
func (d *Driver) grant(t *ticket) (driver.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] != t {
		return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrLost, errSession)
	}
	d.holdLocked(t)
	return driver.Grant{Token: t.number, Asked: t.s.asked}, nil
}

// wait waits in line until the ticket is granted. There may be very many who
// do: this function and those that it waits in are small, so that a waiter has
// a small stack.
func (d *Driver) wait(ctx context.Context, t *ticket, r *driver.Request, known []entry) (driver.Grant, error) {
	w, l, err := d.stand(t, r, known)
	if err != nil {
		return driver.Grant{}, err
	}
	err = d.await(ctx, w, l)
	l.leave(w)
	if err != nil {
		return driver.Grant{}, err
	}
	return d.confirm(ctx, t, r)
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
		return lostFor(err)
	case <-ctx.Done():
		return ended(ctx, l.trouble())
	case <-d.ctx.Done():
		return driver.ErrClosed
	}
}

// lostFor is nil where there is no cause.
func lostFor(cause error) error {
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", driver.ErrLost, cause)
}

// confirm makes the grant of one who has waited. The keeper has kept the
// session fresh enough, unless there was an outage.
func (d *Driver) confirm(ctx context.Context, t *ticket, r *driver.Request) (driver.Grant, error) {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.ensure(ctx, t, d.since(*r, 2)); err != nil {
		return driver.Grant{}, err
	}
	return d.grant(t)
}
